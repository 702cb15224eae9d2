"""Compiles a pipeline for Kubeflow Pipelines and Vertex AI, with what every node gets there."""
