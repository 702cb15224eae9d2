"""CSV files -> typed record batches."""
