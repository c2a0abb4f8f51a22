"""Words, figures and what people take away: report, card, table."""
