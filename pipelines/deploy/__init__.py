"""Settings of a compiled pipeline on Kubeflow Pipelines and Vertex AI."""
