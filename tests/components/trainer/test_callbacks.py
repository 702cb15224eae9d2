import time

import keras
import loop_script as script
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from infeed.components.base.errors import InfeedError
from infeed.components.trainer import callbacks
from infeed.components.trainer.callbacks import CallbackSpec, ProfileSteps, make_callbacks
from infeed.components.trainer.options import TrainOptions

pytestmark = pytest.mark.slow  # Keras takes seconds to load


def made(tmp_path, body="", *, chief=True, **options):
    file = tmp_path / "mine.py"
    file.write_text(f"import keras\n\n\ndef callbacks(spec):\n    return {body}\n")
    if body:
        options["callbacks_fn"] = f"{file}:callbacks"
    told = CallbackSpec(str(tmp_path), chief, {"rate": 0.5})
    return make_callbacks(TrainOptions(model_fn="m:f", label="y", **options), told)


def kinds(made):
    return [type(callback).__name__ for callback in made]


def test_the_users_callbacks_come_first_and_know_the_hyperparameters(tmp_path):
    body = "[keras.callbacks.LearningRateScheduler(lambda epoch: spec.hparams['rate'])]"
    assert kinds(made(tmp_path, body, patience=2)) == ["LearningRateScheduler", "TensorBoard", "EarlyStopping"]


def test_the_chief_alone_writes_logs(tmp_path):
    assert kinds(made(tmp_path, chief=False, patience=2, profile_steps=[1, 2])) == ["EarlyStopping"]


def test_logs_that_cannot_be_written_end_no_training(tmp_path, caplog):
    (tmp_path / "train").touch()  # where TensorBoard makes a folder
    (logs,) = made(tmp_path)
    _, _, fitted = script.train_ours("one_device", epochs=2, callbacks=[logs])
    assert len(fitted.epochs) == 2
    (warning,) = [record.message for record in caplog.records if record.name == callbacks.__name__]
    assert str(tmp_path) in warning


def test_something_else_than_callbacks_is_refused(tmp_path):
    with pytest.raises(InfeedError, match=r"int(.|\n)*mine\.py:callbacks"):
        made(tmp_path, "[3]")


def test_a_trace_of_the_chosen_steps_is_written_where_tensorboard_looks(tmp_path):
    class Spans(ProfileSteps):
        traced = ()

        def on_train_batch_end(self, batch, logs=None):
            if self._running:
                self.traced += (int(self.model.optimizer.iterations),)
            super().on_train_batch_end(batch, logs)

    profile = Spans(str(tmp_path), 13, 15)
    script.train_ours("one_device", callbacks=[profile])  # epochs of 10 steps in calls of 4, 4 and 2
    assert profile.traced == (14, 18)  # steps 11 to 14 and 15 to 18
    (trace,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    planes = xplane_pb2.XSpace.FromString(trace.read_bytes()).planes
    assert any(line.events for plane in planes for line in plane.lines)


def test_the_measured_wait_is_that_of_tensorflows_profiler(tmp_path):
    def late(features, label):
        def sleep(value):
            time.sleep(0.05)
            return value

        return features, tf.ensure_shape(tf.numpy_function(sleep, [label], label.dtype), label.shape)

    profile = ProfileSteps(str(tmp_path), 13, 20)  # calls of 4, 4 and 2: the second epoch
    _, _, fitted = script.train_ours("one_device", train=script.data().repeat().map(late), callbacks=[profile])
    (trace,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    (host,) = (one for one in xplane_pb2.XSpace.FromString(trace.read_bytes()).planes if one.name == "/host:CPU")
    names = {number: data.name for number, data in host.event_metadata.items()}
    events = [event for line in host.lines for event in line.events]
    next_batch = [one.duration_ps for one in events if names[one.metadata_id] == "IteratorGetNextOp::DoCompute"]
    assert len(next_batch) == script.STEPS
    assert fitted.epochs[1].wait_seconds == pytest.approx(sum(next_batch) / 1e12, rel=0.1)


def test_a_model_may_say_how_many_steps_a_call_runs():
    from infeed.components.trainer.loop import STEPS_PER_CALL, steps_per_call

    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=5)
    assert steps_per_call(model) == 5
    model.compile("sgd", "mse")
    assert steps_per_call(model) == STEPS_PER_CALL
