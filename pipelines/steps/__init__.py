"""The steps of a pipeline one by one, over plain folders; neither TFX nor ML Metadata is imported."""
