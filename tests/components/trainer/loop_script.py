"""Trains a small network under the strategy of the first argument, on two logical CPUs, and prints what came of it.

Logical devices can be made only before TensorFlow starts, so the tests run this in a process of its own.
"""

import json
import sys

import keras
import tensorflow as tf

from infeed.components.trainer import loop
from infeed.components.trainer.epochs import measure_ceiling
from infeed.components.trainer.strategy import describe, make_strategy

BATCH, STEPS, EPOCHS = 16, 10, 2


def data():
    x = tf.random.stateless_normal([STEPS * BATCH, 4], [0, 1])
    y = tf.reduce_sum(x, axis=1) + 1.0
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(BATCH, drop_remainder=True).with_options(options)


def build(dropout=0.0):
    keras.utils.set_random_seed(0)
    x = keras.Input([4], name="x")
    hidden = keras.layers.Dropout(dropout)(keras.layers.Dense(8, activation="tanh")(x))
    model = keras.Model({"x": x}, keras.layers.Dense(1)(hidden))
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def train_ours(strategy_name, *, dropout=0.0, start_step=0, **options):
    strategy = make_strategy(strategy_name)
    with strategy.scope():
        model = build(dropout)
    settings = {"steps_per_call": 4, "epochs": EPOCHS, "max_steps": None, "callbacks": []} | options
    train = data().repeat().skip(start_step)
    settings |= {"batch_size": BATCH, "steps_per_epoch": STEPS, "start_step": start_step}
    fitted = loop.fit(model, strategy, train, data(), **settings)
    return model, strategy, fitted


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    model, strategy, fitted = train_ours(sys.argv[1])
    result = {
        "strategy": describe(strategy),
        "replicas": strategy.num_replicas_in_sync,
        "weights": [weight.numpy().tolist() for weight in model.weights],
        "history": fitted.history,
        "steps": [epoch.steps for epoch in fitted.epochs],
        "waits": [epoch.wait_seconds for epoch in fitted.epochs],
        "ceiling": measure_ceiling(fitted.train_steps, strategy, next(iter(data())), BATCH, seconds=0.2),
    }
    print(json.dumps(result))
