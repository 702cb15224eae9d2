"""A step on Kubeflow Pipelines: its entry point, and what lets TFX work with any object store of the launcher."""
