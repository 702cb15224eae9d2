"""Compiles a config to a job file for Kubeflow Pipelines or Vertex AI."""
