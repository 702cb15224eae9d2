"""Calls `run_fn` as TFX's Trainer would, with the FnArgs in the JSON file of the first argument.

TFX itself takes long to load and is not needed. A checkpoint is written before every call of the training function,
whatever that costs, and what training could reach without input is measured for a tenth of a second. Where the variable
DEVICES says so, TensorFlow sees so many CPUs; that can be set only before it starts. Where WAITED is set, the meter
says that this process waited so many seconds.
"""

import json
import os
import sys
from types import SimpleNamespace

import tensorflow as tf

from infeed.components.feed.meter import Meter
from infeed.components.trainer import checkpoint
from infeed.components.trainer.loop import measure_ceiling
from infeed.components.trainer.run_fn import run_fn

if __name__ == "__main__":
    if "DEVICES" in os.environ:
        cpus = [tf.config.LogicalDeviceConfiguration()] * int(os.environ["DEVICES"])
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
    if "WAITED" in os.environ:
        Meter.seconds = property(lambda meter: [float(os.environ["WAITED"])])
    checkpoint._PAUSE = 0
    measure_ceiling.__kwdefaults__["seconds"] = 0.1
    with open(sys.argv[1]) as file:
        given = dict.fromkeys(("hyperparameters", "eval_steps", "schema_path", "base_model")) | json.load(file)
        run_fn(SimpleNamespace(**given))
