"""Batch predictions: apply a model to examples, and write its outputs next to identifying columns."""
