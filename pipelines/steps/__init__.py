"""The steps of a pipeline as functions of plain folders, without TFX and ML Metadata."""
