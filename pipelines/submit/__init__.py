"""Starts a compiled job on a cluster, and follows it.

`run` is what both platforms share, `kubeflow` and `vertex` are the two, and `steps` gathers what they list. A
platform's client is imported when its module is.
"""
