"""Evaluation of models on examples, and batch predictions."""
