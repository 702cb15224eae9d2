"""Runs on Kubeflow Pipelines (v2)."""
