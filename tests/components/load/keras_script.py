"""Train on batches of `infeed.load` by Keras' own `fit`, and print what it did as JSON.

python keras_script.py FOLDER CACHE
"""

from __future__ import annotations

import json
import sys
from typing import Any

import keras
import numpy as np

import infeed

WHERE, CACHE = sys.argv[1:]
COLUMNS = {"x1": [], "x2": [], "y": []}


def load(split: str, **options: Any) -> Any:
    return infeed.load(WHERE, split, batch_size=64, seed=1, columns=list(COLUMNS), cache_dir=CACHE, **options)


def model() -> Any:
    inputs = {name: keras.Input((), name=name) for name in ("x1", "x2")}
    made = keras.Model(inputs, keras.layers.Dense(1)(keras.ops.stack(list(inputs.values()), axis=1)))
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return made


class Seen(keras.callbacks.Callback):
    """Steps of each epoch of training and of validation, and the true loss after it."""

    def __init__(self, rows: Any) -> None:
        super().__init__()
        self.rows, self.steps, self.validated, self.truth = rows, [0], [0], []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps[-1] += 1

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.validated[-1] += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        weights, bias = (np.asarray(weight) for weight in self.model.get_weights())
        made = np.stack([self.rows["x1"], self.rows["x2"]], axis=1) @ weights + bias
        self.truth.append(float(np.mean((made[:, 0] - self.rows["y"]) ** 2)))
        self.steps.append(0)
        self.validated.append(0)


def fitted(batches: Any, **options: Any) -> dict[str, Any]:
    validation = load("eval", shuffle=False)
    seen = Seen(validation[:])
    history = model().fit(
        batches, epochs=3, validation_data=validation.numpy(label="y"), verbose=0, callbacks=[seen], **options
    )
    return {
        "steps": seen.steps[:3],
        "validated": seen.validated[:3],
        "val_loss": history.history["val_loss"],
        "truth": seen.truth,
    }


train = load("train")
predicted = model().predict(load("eval", shuffle=False).map(lambda batch: {**batch}).numpy(), verbose=0)
weighted = model().fit(
    load("train").map(lambda batch: {**batch, "y": (batch["y"] > 0).astype("int64")}).numpy(label="y", epochs=1),
    class_weight={0: 1.0, 1: 2.0},
    verbose=0,
)
print(
    json.dumps(
        {
            "endless": fitted(train.numpy(label="y"), steps_per_epoch=7, shuffle=False),
            "one epoch": fitted(train.numpy(label="y", epochs=1)),
            "predicted": len(predicted),
            "weighted": weighted.history["loss"],
        }
    )
)
