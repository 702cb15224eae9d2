"""Training of a model on features, and export for serving."""
