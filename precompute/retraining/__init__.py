"""Evidence by retraining: which models, training them, measuring and scoring."""
