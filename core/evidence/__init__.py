"""What retraining measured, one file for each question."""
