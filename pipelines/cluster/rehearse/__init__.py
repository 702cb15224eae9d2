"""Executes a compiled job on this machine, step by step, to test a deployment without a cluster.

`rehearsal` rejects unsupported jobs and maps buckets to folders. `dag_executor` walks the tasks and gathers their
inputs. `step` runs the attempts of a task, and `executor_io` defines their messages as Kubeflow's driver and launcher
write them. `launch` starts their processes, each with the disk of a pod, and injects failures. `store` keeps artifacts
and answers resolvers.
"""
