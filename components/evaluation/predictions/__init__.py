"""Batch predictions: apply a model to examples, and write its outputs beside identifying columns."""
