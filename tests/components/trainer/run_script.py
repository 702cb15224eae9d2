"""Calls `run_fn` as TFX's Trainer would, with the FnArgs in the JSON file of the first argument.

TFX itself takes long to load and is not needed. A checkpoint is written before every call of the training function,
whatever that costs, and what training could reach without input is measured for a tenth of a second.
"""

import json
import sys
from types import SimpleNamespace

from infeed.components.trainer import checkpoint
from infeed.components.trainer.epochs import measure_ceiling
from infeed.components.trainer.run_fn import run_fn

if __name__ == "__main__":
    checkpoint._PAUSE = 0
    measure_ceiling.__kwdefaults__["seconds"] = 0.1
    with open(sys.argv[1]) as file:
        run_fn(SimpleNamespace(hyperparameters=None, eval_steps=None, **json.load(file)))
