"""Checkpoints of the training loop on its own; `test_resume` kills a whole training."""

import importlib.util
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from infeed.components.trainer import checkpoint
from infeed.components.trainer.checkpoint import Checkpoints, checkpoint_folder, pack, plain, saved_step, unpack

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("loop_script.py")
spec = importlib.util.spec_from_file_location("loop_script", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


class BrokenOffError(Exception):
    pass


class Stop(keras.callbacks.Callback):
    """Breaks off after the given batch of the given epoch; by default never."""

    def __init__(self, *at):
        super().__init__()
        self._at, self._epoch = at, 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == self._at:
            raise BrokenOffError


class Remembers(keras.callbacks.Callback):
    """Counts batches in public, and epochs in private."""

    def __init__(self):
        super().__init__()
        self.batches, self._epochs = 0, 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        self._epochs += 1


def train(folder, *callbacks, start_step=0):
    checkpoints = Checkpoints(folder, folder, 1e-9, tf.distribute.get_strategy())
    return script.train_ours(
        "one_device", epochs=3, callbacks=callbacks, checkpoints=checkpoints, start_step=start_step, dropout=0.5
    )


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A training of 3 x 10 steps, 4 a call, that broke off after 4 + 4 steps of its second epoch."""
    monkeypatch.setattr(checkpoint, "_PAUSE", 0)
    remembers = Remembers()
    with pytest.raises(BrokenOffError):
        train(str(tmp_path), remembers, Stop(1, 7))
    return str(tmp_path)


def test_the_newest_checkpoint_was_written_before_the_call_that_broke_off(broken):
    assert saved_step(broken) == 14


def test_resuming_gives_the_same_weights_history_and_records(broken, tmp_path_factory):
    remembers = Remembers()
    resumed, _, fitted = train(broken, remembers, Stop(), start_step=saved_step(broken))
    straight, _, expected = train(str(tmp_path_factory.mktemp("straight")), Remembers(), Stop())
    for ours, theirs in zip(resumed.variables, straight.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert fitted.history == expected.history
    assert [epoch.steps for epoch in fitted.epochs] == [10, 10, 10]
    assert remembers.batches == 9  # calls; those of the first process are remembered
    assert remembers._epochs == 2


def test_without_a_checkpoint_training_starts_at_the_beginning(tmp_path):
    assert saved_step(str(tmp_path)) == 0


def test_any_change_of_what_is_trained_gives_another_folder():
    folders = {checkpoint_folder("base", options, ["data"]) for options in ({"epochs": 1}, {"epochs": 2})}
    assert len(folders) == 2
    assert checkpoint_folder("base", {"a": 1, "b": 2}) == checkpoint_folder("base", {"b": 2, "a": 1})


def test_plain_values_come_back_as_they_were():
    values = {"best": float("inf"), "wait": 3, "text": "a", "none": None, "list": [1, {"x": [np.arange(3)]}]}
    back = unpack(pack({**values, "scalar": np.float32(0.5), "tensor": tf.constant(2)}))
    np.testing.assert_array_equal(back["list"][1]["x"].pop(), values["list"][1]["x"].pop())
    assert back == {**values, "scalar": 0.5, "tensor": 2}


@pytest.mark.parametrize("value", [object(), [object()], {1: 2}, np.array([object()])])
def test_anything_else_is_left_out(value):
    assert not plain(value)
