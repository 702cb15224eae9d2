"""Executes a compiled job on this machine, step by step, to test a deployment without a cluster.

`rehearsal` rejects unsupported jobs and maps buckets to folders. `dag_executor` walks the tasks and gathers their
inputs. `step` runs the attempts of a task, `executor_io` defines their messages, and `launch` starts their processes
and injects failures. `launcher` and `backend` emulate Kubeflow's launcher and driver. `store` keeps artifacts and
answers resolvers.
"""
