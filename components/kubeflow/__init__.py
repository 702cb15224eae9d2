"""Steps on Kubeflow Pipelines: their entry point, and adapters that let TFX use every object store of the launcher."""
