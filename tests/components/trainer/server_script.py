"""One process of a training with parameter servers, as TF_CONFIG says which; the chief prints what came of it.

A training is broken off and resumed in one process here, as in `loop_script`: servers and strategy stay.
"""

import contextlib
import dataclasses
import json
import os
import sys

import keras
import loop_script as script
import tensorflow as tf

from infeed.components.trainer import checkpoint, cluster
from infeed.components.trainer.asynchronous import PerWorkerDatasets
from infeed.components.trainer.cluster import coordinated_workers, only_serves
from infeed.components.trainer.distribution import make_strategy
from infeed.components.trainer.loop import measure_ceiling


class Count(keras.layers.Layer):
    """Counts the rows that it is trained on, in a variable that Keras reads and writes."""

    def build(self, shape):
        self.rows = self.add_weight(shape=(), dtype="int64", initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.rows.assign_add(tf.shape(x, tf.int64)[0])
        return x


def build(dropout=0.1, optimizer="adam", jit_compile="auto"):
    keras.utils.set_random_seed(0)
    x = keras.Input([4], name="x")
    hidden = keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2", kernel_constraint="unit_norm")(
        Count()(x)
    )
    hidden = keras.layers.Dropout(dropout)(keras.layers.BatchNormalization()(hidden))
    model = keras.Model({"x": x}, keras.layers.Dense(1)(hidden))
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9)
    model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"], jit_compile=jit_compile)
    return model


def share(workers):
    rows = slice(workers.index * script.BATCH // workers.count, (workers.index + 1) * script.BATCH // workers.count)
    return script.data().map(lambda features, label: ({"x": features["x"][rows]}, label[rows]))


def train(strategy, folder, callback):
    saved = checkpoint.saved_step(folder)
    return script.train_ours(
        strategy,
        start_step=saved,
        callbacks=[callback],
        checkpoints=checkpoint.Checkpoints(folder, folder, 1e-9, strategy),
        per_worker=PerWorkerDatasets(
            coordinated_workers().count, lambda workers: share(workers).repeat().skip(saved), share
        ),
    )


if __name__ == "__main__":
    model_folder, folder = sys.argv[1:]
    if only_serves():
        cluster.serve(model_folder)
        sys.exit()
    strategy = make_strategy("parameter_server", coordinated_workers())
    checkpoint._PAUSE, script.build = 0, build
    with contextlib.suppress(KeyboardInterrupt):
        train(strategy, folder, script.BreakOff())
    model, _, fitted = train(strategy, folder, keras.callbacks.Callback())
    result = {
        "devices": sorted({weight.value.device for weight in model.weights}),
        "updates": int(model.optimizer.iterations.numpy()),
        "rows": int(model.layers[1].rows.numpy()),
        "history": fitted.history,
        "epochs": [[epoch.steps, epoch.examples, epoch.wait_seconds, epoch.seconds] for epoch in fitted.epochs],
    }
    batch = next(iter(share(coordinated_workers())))
    ceiling = measure_ceiling(fitted.train_steps, fitted.meter, strategy, batch, script.BATCH, seconds=0.2)
    result["ceiling"] = dataclasses.asdict(ceiling)
    print(json.dumps(result), flush=True)
    os._exit(0)
