"""The cards of the page Evidence, one file for each question."""
