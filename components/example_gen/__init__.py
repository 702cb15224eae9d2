"""Ingest of rows as sharded TFRecords."""
