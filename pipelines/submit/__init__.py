"""Starts a compiled job on a cluster, and follows it.

`run` and `parameters` are what both platforms share, `target` chooses one, `kubeflow*` and `vertex*` are the two, and
`follow` and `outcome` tell of the run. A platform's client is imported when its module is.
"""
