"""Trains a small network under the strategy of the first argument, on two logical CPUs, and prints what came of it.

Logical devices can be made only before TensorFlow starts, so the tests run this in a process of its own.
"""

import contextlib
import dataclasses
import json
import sys
import tempfile
from functools import partial

import keras
import tensorflow as tf

from infeed.components.feed.columns import load_columns, training_calls
from infeed.components.feed.options import GlobalBatch
from infeed.components.feed.row_batches import RowBatches
from infeed.components.trainer import checkpoint, distribution, loop
from infeed.components.trainer.distribution import distribute, make_strategy, strategy_name
from infeed.components.trainer.loop import measure_ceiling

BATCH, STEPS, EPOCHS = 16, 10, 2
ONE = tf.distribute.get_strategy()


def data():
    x = tf.random.stateless_normal([STEPS * BATCH, 4], [0, 1])
    y = tf.reduce_sum(x, axis=1) + 1.0
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.autotune.enabled = False  # seams.tensorflow.untuned says why
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(BATCH, drop_remainder=True).with_options(options)


def row_batches(start_step=0):
    """The same rows for a step to gather, in an order that is shuffled anew each epoch."""
    columns = load_columns(data())
    return RowBatches(columns, partial(training_calls, STEPS * BATCH, GlobalBatch(BATCH), start_step=start_step))


def from_copies(strategy):
    """Weights trained on columns of which each replica has a copy, where the copies lie, and where replicas gather."""
    placed = row_batches().on_devices(strategy.extended.worker_devices)

    @tf.function
    def gathered(numbers):
        return strategy.run(placed.take, args=(numbers,))

    labels = strategy.experimental_local_results(gathered(tf.range(3, dtype=tf.int64))[1])
    alone = tf.function(row_batches().on_devices(["/CPU:1"]).take).get_concrete_function(tf.TensorSpec([3], tf.int64))
    copies = [copy for column in placed.columns.columns for copy in column.copies.values()]
    return {
        "weights": [one.numpy().tolist() for one in train_ours(strategy, train=placed)[0].weights],
        "lie": [copy.backing_device[-5:] for copy in copies],
        "gather_alone": [one.device[-5:] for one in alone.graph.get_operations() if one.type == "GatherV2"],
        "gather": [label.backing_device[-5:] for label in labels],
    }


class OwnSteps(keras.Model):
    """Steps that return a value of their own beside Keras' metrics, and use what Keras' own returned."""

    def train_step(self, data):
        logs = super().train_step(data)
        return {**logs, "mine": tf.reduce_mean(data[1]), "twice": 2 * logs["loss"]}

    def test_step(self, data):
        return {**super().test_step(data), "mine": tf.reduce_max(data[1])}


class ResultsByMetric(keras.Model):
    """Steps that return the result of each metric by its name: of those given to `compile`, a dict for all."""

    def train_step(self, data):
        super().train_step(data)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data):
        super().test_step(data)
        return {metric.name: metric.result() for metric in self.metrics} | {"nothing": None}


def build(dropout=0.0, *, optimizer="sgd", jit_compile="auto", kind=keras.Model):
    # Seeds of their own: threads of earlier tests may draw from Python's generator, from which Keras seeds layers.
    first, second = (keras.initializers.GlorotUniform(seed) for seed in (1, 2))
    x = keras.Input([4], name="x")
    hidden = keras.layers.Dense(8, activation="tanh", kernel_initializer=first)(x)
    dropped = keras.layers.Dropout(dropout, seed=3)(hidden)
    model = kind({"x": x}, keras.layers.Dense(1, kernel_initializer=second)(dropped))
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=jit_compile)
    return model


def train_ours(strategy, *, dropout=0.0, start_step=0, compiled=None, train=None, **options):
    """`strategy` is one, or the name of one; `train` what it is fed with, if not with `data`."""
    strategy = make_strategy(strategy) if isinstance(strategy, str) else strategy
    with strategy.scope():
        model = build(dropout, **(compiled or {}))
    train = train or data().repeat().skip(start_step)
    sizes = {"steps_per_call": 4, "epochs": EPOCHS, "max_steps": None}
    given = {name: options.pop(name, size) for name, size in sizes.items()}
    schedule = loop.Schedule(batch_size=BATCH, steps_per_epoch=STEPS, **given)
    fitted = loop.fit(model, strategy, train, data(), schedule, start_step=start_step, **options)
    return model, strategy, fitted


class BreakOff(keras.callbacks.Callback):
    """Raises KeyboardInterrupt in the second epoch, after its second call."""

    calls = 0

    def on_train_batch_end(self, batch, logs=None):
        self.calls += 1
        if self.calls == 5:
            raise KeyboardInterrupt


def broken_and_resumed(strategy):
    """The model; a process has one strategy, as in a training, for the collective operations of two would meet."""
    checkpoint._PAUSE = 0
    with tempfile.TemporaryDirectory() as folder:

        def train(*callbacks, start_step=0):
            checkpoints = checkpoint.Checkpoints(folder, folder, 1e-9, strategy)
            return train_ours(strategy, callbacks=callbacks, checkpoints=checkpoints, start_step=start_step)[0]

        with contextlib.suppress(KeyboardInterrupt):
            train(BreakOff())
        return train(keras.callbacks.Callback(), start_step=checkpoint.saved_step(folder))


def waiting_on(device):
    """Where numbers and text of a batch lie, and the weights, when one device trains that is not the host."""
    distribution.accelerators = lambda strategy: (device,)
    numbers, text = next(iter(distribute(tf.data.Dataset.from_tensors((tf.zeros(2), tf.constant(["a"]))), ONE, BATCH)))
    model, _, _ = train_ours(ONE)
    return [numbers.device, text.numpy()[0].decode()], [weight.numpy().tolist() for weight in model.weights]


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    model, strategy, fitted = train_ours(sys.argv[1])
    result = {
        "strategy": strategy_name(strategy),
        "replicas": strategy.num_replicas_in_sync,
        "weights": [weight.numpy().tolist() for weight in model.weights],
        "history": fitted.history,
        "steps": [epoch.steps for epoch in fitted.epochs],
        "waits": [epoch.wait_seconds for epoch in fitted.epochs],
        "resumed": [weight.numpy().tolist() for weight in broken_and_resumed(strategy).weights],
        "by_rows": [one.numpy().tolist() for one in train_ours(strategy, train=row_batches())[0].weights],
        "from_copies": from_copies(strategy),
        "waiting_on": waiting_on("/CPU:1"),
        "own_history": train_ours(strategy, compiled={"kind": OwnSteps})[2].history,
    }
    ceiling = measure_ceiling(fitted.train_steps, fitted.meter, strategy, next(iter(data())), BATCH, seconds=0.2)
    result["ceiling"] = dataclasses.asdict(ceiling)
    print(json.dumps(result), flush=True)
