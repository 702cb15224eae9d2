"""Executes a compiled Kubeflow job on this machine, step by step: a deployment tried without a cluster.

One idea a file: `rehearsal` is the whole, `walk` goes through the tasks that `dag` has read, `scope` gathers what a
task takes, `step` makes its attempts, `executor_io` and `placeholders` are what it reads and writes, `launch` and
`process` start it, `store` remembers, `fingerprint` says when that will do, `queries` finds it, `locations` maps
buckets to folders, `platform` is what Kubeflow and Vertex AI do differently, `vertex_training` and `custom_job` stand
in for the training service of Vertex AI, and `faults` are made on purpose.
"""
