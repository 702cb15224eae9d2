"""Checkpoints of the training loop on its own; `test_resume` kills a whole training."""

import shutil
from pathlib import Path

import keras
import loop_script as script
import numpy as np
import pytest
import tensorflow as tf
import trained

from infeed.components.base.errors import InfeedError
from infeed.components.trainer import checkpoint
from infeed.components.trainer.checkpoint import (
    Checkpoints,
    checkpoint_folder,
    export_error_context,
    pack,
    plain,
    saved_step,
    unpack,
)
from infeed.components.trainer.steps import Progress

pytestmark = [pytest.mark.slow, pytest.mark.stack]


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


def train(folder, *callbacks, start_step=0, epochs=3):
    checkpoints = Checkpoints(folder, folder, 1e-9, tf.distribute.get_strategy())
    return script.train_ours(
        "one_device", epochs=epochs, callbacks=callbacks, checkpoints=checkpoints, start_step=start_step, dropout=0.5
    )


def numbers(folder):
    return sorted(int(path.stem.partition("-")[2]) for path in Path(folder).glob("*.index"))


@pytest.fixture(scope="module")
def broken_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_PAUSE", 0)
        with pytest.raises(BrokenOffError):
            train(str(folder), Remembers(), Stop(1, 7))
    return folder


@pytest.fixture
def broken(broken_once, tmp_path, monkeypatch):
    """A training of 3 x 10 steps, 4 a call, that broke off after 4 + 4 steps of its second epoch: a copy of its own."""
    monkeypatch.setattr(checkpoint, "_PAUSE", 0)
    return shutil.copytree(broken_once, str(tmp_path), dirs_exist_ok=True)


def test_resuming_gives_the_same_weights_history_and_records(broken, tmp_path_factory):
    remembers = Remembers()
    resumed, _, fitted = train(broken, remembers, Stop(), start_step=saved_step(broken))
    straight, _, expected = train(str(tmp_path_factory.mktemp("straight")), Remembers(), Stop())
    trained.check_weights(resumed.variables, straight.variables)
    assert fitted.history == expected.history
    assert [epoch.steps for epoch in fitted.epochs] == [10, 10, 10]
    assert remembers.batches == 9  # calls; those of the first process are remembered
    assert remembers._epochs == 2


def test_a_finished_training_makes_no_step_when_it_is_started_again(tmp_path):
    class Early(keras.callbacks.EarlyStopping):
        steps = 0

        def on_train_batch_end(self, batch, logs=None):
            type(self).steps += 1

    def early():  # stops after two of six epochs, and takes the weights of the first
        return Early("val_loss", mode="max", patience=1, restore_best_weights=True)

    first_model, _, first = train(str(tmp_path), early(), Stop(), epochs=6)
    done, Early.steps = saved_step(str(tmp_path)), 0
    again, _, second = train(str(tmp_path), early(), Stop(), epochs=6, start_step=done)
    assert (done, Early.steps) == (20, 0)
    trained.check_weights(again.variables, first_model.variables)
    assert second.history == first.history
    assert second.epochs == first.epochs


class Obstacle(keras.callbacks.Callback):
    """A file stands in the place of the folder in the second epoch: nothing can be written there, by root neither."""

    def __init__(self, folder):
        super().__init__()
        self._folder, self._away = Path(folder), Path(f"{folder}.away")

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self._folder.rename(self._away)
            self._folder.touch()
        if epoch == 2:
            self._folder.unlink()
            self._away.rename(self._folder)


def test_a_checkpoint_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint, "_PAUSE", 0)
    folder = str(tmp_path / "blocked")
    ours, _, _ = train(folder, Obstacle(folder))
    theirs, _, _ = train(str(tmp_path / "free"))
    trained.check_weights(ours.variables, theirs.variables)
    warnings = [record.message for record in caplog.records if record.name == checkpoint.__name__]
    assert len(warnings) == 3
    assert all(f"cannot be written to {folder}: " in one for one in warnings)
    assert all("is not a directory" in one for one in warnings), warnings
    assert numbers(folder) == [28, 31]


def test_that_none_could_be_written_is_told_at_the_end(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint, "_PAUSE", 0)  # else how many are due depends on how long one takes
    (tmp_path / "file").touch()
    train(str(tmp_path / "file"))
    assert caplog.records[-1].message == f"none of 9 checkpoints could be written to {tmp_path}/file"
    assert caplog.records[-1].levelname == "ERROR"


def test_half_a_checkpoint_does_not_keep_the_room_of_the_next(tmp_path, monkeypatch):
    def full(manager, checkpoint_number):
        for name in (f"ckpt-{checkpoint_number}_temp", f"ckpt-{checkpoint_number}.data"):
            (tmp_path / name).mkdir()
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    (tmp_path / "ckpt-3.index").touch()
    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    train(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-3.index"]


def test_that_another_process_is_gone_is_no_matter_of_the_disk(tmp_path, monkeypatch):
    def lost(*_, **__):
        raise tf.errors.UnavailableError(None, None, "worker 1 is gone")

    monkeypatch.setattr(tf.train.CheckpointManager, "save", lost)
    with pytest.raises(tf.errors.UnavailableError):
        train(str(tmp_path))


@pytest.mark.parametrize("damage", ["cut", "flip", "lose", "empty", "forge"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(broken, caplog, damage):
    newest, data = saved_step(broken), Path(broken, "ckpt-14.data-00000-of-00001")
    content = data.read_bytes()
    {
        "cut": lambda: data.write_bytes(content[:-100]),
        "flip": lambda: data.write_bytes(bytes([content[0] ^ 1]) + content[1:]),
        "lose": data.unlink,
        "empty": lambda: Path(broken, "ckpt-14.index").write_bytes(b""),
        "forge": lambda: tf.train.Checkpoint(other=tf.Variable(1)).write(f"{broken}/ckpt-14"),
    }[damage]()
    assert (newest, saved_step(broken)) == (14, 10)
    assert f"damaged checkpoint {broken}/ckpt-14: " in caplog.text
    for index in Path(broken).glob("*.index"):
        index.write_bytes(b"")
    assert saved_step(broken) == saved_step(f"{broken}/none") == 0


@pytest.mark.parametrize("shape", [(), (3,)], ids=["a variable more", "of another shape"])
def test_a_checkpoint_of_another_version_says_which_and_what_to_do(broken, monkeypatch, shape):
    """As where the meter's variable changed: what is saved beside the model has another shape, or was not there."""
    attach = Checkpoints.attach

    def attach_other(self, progress, callbacks, *more, **given):
        others = [tf.Variable(tf.zeros(shape)) for _ in more] if shape else [*more, tf.Variable(0.0)]
        attach(self, progress, callbacks, *others, **given)

    monkeypatch.setattr(Checkpoints, "attach", attach_other)
    says = r"(?s)another training or another version: .*ckpt-14\n.*remove .* to train from"
    with pytest.raises(InfeedError, match=says) as caught:
        train(broken, Remembers(), Stop(), start_step=14)
    assert caught.value.where == f"{broken}/ckpt-14"
    assert saved_step(broken) == 14  # nothing is lost


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), "op"])
def test_an_export_that_fails_says_where_and_how_to_go_on(broken, tmp_path, error):
    if error == "op":
        error = tf.errors.ResourceExhaustedError(None, None, "{{node SaveV2}} /m: No space left on device [Op:SaveV2]")
    (tmp_path / "model" / "variables").mkdir(parents=True)
    says = rf"(?s)cannot be exported: .*No space left on device\n  where: {tmp_path}/model\n  do:    free some space"
    with (
        pytest.raises(InfeedError, match=rf"{says}.*run again; 14 steps of training are saved in {broken}"),
        export_error_context(str(tmp_path / "model"), broken),
    ):
        raise error
    assert not (tmp_path / "model").exists()


def test_early_stopping_counts_on_over_a_break(tmp_path, monkeypatch):
    def early():  # the loss only falls, so the first epoch stays the best, and two more may follow
        return keras.callbacks.EarlyStopping("val_loss", mode="max", patience=2, restore_best_weights=True)

    monkeypatch.setattr(checkpoint, "_PAUSE", 0)
    folder = str(tmp_path / "broken")
    with pytest.raises(BrokenOffError):
        train(folder, early(), Stop(1, 7), epochs=6)
    resumed, _, fitted = train(folder, early(), Stop(), epochs=6, start_step=saved_step(folder))
    straight, _, expected = train(str(tmp_path / "straight"), early(), Stop(), epochs=6)
    assert len(fitted.epochs) == len(expected.epochs) == 3
    trained.check_weights(resumed, straight)


def test_a_checkpoint_waits_until_its_time_has_come_however_slow_the_first_steps_were(tmp_path):
    folder = str(tmp_path)
    checkpoints = Checkpoints(folder, folder, 3600, tf.distribute.get_strategy())
    script.train_ours("one_device", epochs=3, callbacks=[], checkpoints=checkpoints)
    assert numbers(folder) == [4, 31]  # the one after the first call, and the one after the last


def test_a_checkpoint_that_no_call_ends_at_is_refused():
    with pytest.raises(InfeedError, match=r"after 13 steps, but no call of 4 steps"):
        Progress.resumed(13, per_epoch=10, per_call=4, total=30)


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
