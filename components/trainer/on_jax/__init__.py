"""Training with Keras on JAX, in a separate process, because a process has one Keras backend.

The process of the step prepares and exports with Keras on TensorFlow. `process` starts the other one, whose first
module is `__main__`. The two build the same model from the user's function. The weights travel to JAX before the first
step, and back after the last one.

`devices` joins the processes of a cluster and copies batches to the devices, and `loop` runs the steps.
"""
