"""Predictions of an exported model for images or rows of tables."""
