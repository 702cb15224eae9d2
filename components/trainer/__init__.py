"""Features -> saved model."""
