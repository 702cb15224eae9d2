"""Executes a compiled Kubeflow job on this machine, step by step: a deployment tried without a cluster.

`rehearsal` is the whole: it refuses what cannot be rehearsed, and maps buckets to folders. `dag_executor` goes through
the tasks and gathers what each takes; `step` makes the attempts of a task, `executor_io` is what they read and write,
and `launch` starts them, to fail where that is asked for. `store` remembers artifacts, and answers resolvers;
`custom_job` stands in for the training service of Vertex AI.
"""
