"""Submits a compiled job to a cluster, and follows the run.

`kubeflow` and `vertex` implement the two platforms, and importing one imports the platform's client. `run` holds what
they share.
"""
