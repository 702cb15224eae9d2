"""StatisticsGen and SchemaGen from column statistics, and comparison of two datasets."""
