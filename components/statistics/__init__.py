"""StatisticsGen: what the columns of a dataset hold, in the form that TFX's SchemaGen and ExampleValidator read."""
