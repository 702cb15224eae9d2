"""Rows in, sharded TFRecords out."""
