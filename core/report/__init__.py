"""Words, figures and what people keep: report, card, table."""
