"""Our training function under Keras' own `fit`, against Keras' own training function."""

import json
import os
import subprocess
import sys

import keras
import loop_script as script
import numpy as np
import pytest
import trained

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # Keras takes seconds to load


@pytest.fixture(scope="module")
def by_keras():
    model = script.build()
    history = model.fit(script.data(), epochs=script.EPOCHS, validation_data=script.data(), verbose=0)
    return model, history.history


@pytest.fixture(scope="module")
def ours():
    model, _, fitted = script.train_ours("one_device")
    return model, fitted


def test_it_trains_to_the_same_weights_as_keras(ours, by_keras):
    model, _ = ours
    trained.check_weights(model, by_keras[0], atol=1e-6)


def test_the_step_is_traced_once_for_all_epochs(ours):
    assert ours[1].train_steps.experimental_get_tracing_count() == 1


def falling():
    return keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=3, decay_rate=0.5))


@pytest.mark.parametrize("compiled", [lambda: {"optimizer": falling()}, lambda: {"jit_compile": True}])
def test_schedules_and_xla_give_what_keras_makes_of_them(compiled):
    theirs = script.build(**compiled())
    theirs.fit(script.data(), epochs=script.EPOCHS, verbose=0)
    ours, _, _ = script.train_ours("one_device", compiled=compiled())
    trained.check_weights(ours, theirs, atol=1e-6)


def test_the_history_is_that_of_keras(ours, by_keras):
    _, fitted = ours
    assert fitted.history.keys() == by_keras[1].keys()
    for name, values in by_keras[1].items():
        np.testing.assert_allclose(fitted.history[name], values, rtol=1e-5)


def test_an_epoch_has_exactly_its_steps_where_calls_do_not_divide_it(ours):
    model, fitted = ours  # in calls of 4, 4 and 2 steps
    assert [epoch.steps for epoch in fitted.epochs] == [10, 10]
    assert int(model.optimizer.iterations) == 20


def test_training_ends_at_exactly_the_step_asked_for():
    model, _, fitted = script.train_ours("one_device", max_steps=13, epochs=5)
    assert int(model.optimizer.iterations) == 13
    assert [epoch.steps for epoch in fitted.epochs] == [10, 3]
    assert [epoch.examples for epoch in fitted.epochs] == [160, 48]


def test_callbacks_work_as_ever():
    class StopAfterFirst(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            assert {"loss", "mae", "val_loss", "val_mae"} <= set(logs)
            self.model.stop_training = True

    _, _, fitted = script.train_ours("one_device", epochs=9, callbacks=[StopAfterFirst()])
    assert len(fitted.epochs) == 1


@pytest.mark.parametrize("compiled", [{}, {"jit_compile": True}])
def test_what_a_models_own_steps_return_is_handed_on_as_by_keras(compiled):
    model = script.build(kind=script.OwnSteps, **compiled)
    theirs = model.fit(script.data(), epochs=script.EPOCHS, validation_data=script.data(), verbose=0).history
    _, _, fitted = script.train_ours("one_device", compiled={"kind": script.OwnSteps, **compiled})
    assert fitted.history.keys() == theirs.keys() >= {"mine", "twice", "val_mine"}
    for name, values in theirs.items():
        np.testing.assert_allclose(fitted.history[name], values, rtol=1e-5)


def test_what_own_steps_return_is_handed_on_from_gathered_rows_too():
    _, _, fitted = script.train_ours("one_device", compiled={"kind": script.OwnSteps}, train=script.row_batches())
    assert fitted.history.keys() >= {"loss", "mine", "twice", "val_mine"}


def test_results_in_a_dict_within_a_dict_are_handed_on_by_their_own_names(by_keras):
    _, _, fitted = script.train_ours("one_device", compiled={"kind": script.ResultsByMetric})
    assert fitted.history.keys() == by_keras[1].keys()
    for name, values in by_keras[1].items():
        np.testing.assert_allclose(fitted.history[name], values, rtol=1e-5)


def test_early_stopping_watches_what_an_own_step_returns():
    stop = keras.callbacks.EarlyStopping(monitor="val_mine", mode="min", patience=1, min_delta=1e9)
    _, _, fitted = script.train_ours("one_device", compiled={"kind": script.OwnSteps}, callbacks=[stop], epochs=9)
    assert len(fitted.history["mine"]) == 2


def test_the_wait_is_part_of_the_epoch(ours):
    _, fitted = ours
    for epoch in fitted.epochs:
        assert 0 < epoch.wait_seconds <= epoch.seconds
        assert epoch.examples_per_second == pytest.approx(epoch.examples / epoch.seconds)
        assert epoch.peak_memory_bytes > 50e6


def by_rows(**options):
    model, _, fitted = script.train_ours(
        "one_device", train=script.row_batches(options.get("start_step", 0)), **options
    )
    return model, fitted


@pytest.fixture(scope="module")
def gathered():
    return by_rows()


@pytest.mark.parametrize("options", [{}, {"steps_per_call": 16}, {"max_steps": 13}, {"start_step": 14}])
def test_steps_that_gather_their_rows_train_as_on_the_batches(options, gathered):
    model, fitted = by_rows(**options) if options else gathered
    batches = script.row_batches(options.get("start_step", 0)).dataset()
    theirs, _, their_fitted = script.train_ours("one_device", train=batches, **options)
    assert [epoch.steps for epoch in fitted.epochs] == [epoch.steps for epoch in their_fitted.epochs]
    trained.check_weights(model, theirs, atol=1e-6)


def test_the_ceiling_of_steps_that_gather_is_measured_on_constant_rows():
    _, fitted = by_rows()  # of its own: to measure trains on
    assert fitted.train_steps.experimental_get_tracing_count() == 1
    call = next(iter(fitted.train))
    ceiling = script.measure_ceiling(fitted.train_steps, fitted.meter, script.ONE, call, script.BATCH, seconds=0.1)
    assert ceiling.examples_per_second > 0
    assert ceiling.steps * script.BATCH / ceiling.seconds == pytest.approx(ceiling.examples_per_second)


@pytest.fixture(scope="module")
def mirrored(warm):
    # It breaks a training off, too: without our doing the process would wait minutes for TensorFlow's threads to end.
    command = [sys.executable, script.__file__, "mirrored"]
    done = subprocess.run(command, env={**os.environ, **warm}, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "ran out of data" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tfx  # for its time: a process of its own that loads TensorFlow
def test_mirrored_over_two_devices_trains_to_the_same_weights(mirrored, by_keras):
    assert (mirrored["strategy"], mirrored["replicas"]) == ("mirrored", 2)
    trained.check_weights(mirrored["weights"], by_keras[0].weights, atol=1e-6)


@pytest.mark.tfx
def test_mirrored_replicas_gather_their_own_rows(mirrored, gathered):
    trained.check_weights(mirrored["by_rows"], gathered[0].weights, atol=1e-6)


@pytest.mark.tfx
def test_mirrored_replicas_gather_from_copies_on_their_own_devices(mirrored):
    trained.check_weights(mirrored["from_copies"]["weights"], mirrored["by_rows"], atol=1e-6)
    assert mirrored["from_copies"]["lie"] == ["CPU:0", "CPU:1"] * 2  # of the features and of the label
    assert mirrored["from_copies"]["gather"] == ["CPU:0", "CPU:1"]
    assert mirrored["from_copies"]["gather_alone"] == ["CPU:1"] * 2  # where no strategy says where the step is


@pytest.mark.tfx
def test_mirrored_goes_on_where_it_broke_off(mirrored):
    trained.check_weights(mirrored["resumed"], mirrored["weights"], atol=1e-7)


@pytest.mark.tfx
def test_one_device_that_is_not_the_host_finds_its_batches_there_and_trains_to_the_same_weights(mirrored, by_keras):
    (device, text), weights = mirrored["waiting_on"]
    assert (device.split("/")[-1], text) == ("device:CPU:1", "a")
    trained.check_weights(weights, by_keras[0].weights, atol=1e-6)


@pytest.mark.tfx
def test_mirrored_hands_on_the_mean_over_replicas_of_what_own_steps_return(mirrored):
    history, means = mirrored["own_history"], [float(label.numpy().mean()) for _, label in script.data()]
    assert history["mine"] == pytest.approx([means[-1]] * 2, rel=1e-5)
    assert history["loss"] == pytest.approx(mirrored["history"]["loss"], rel=1e-5)
    assert history.keys() >= {"val_mine", "val_loss", "twice"}


@pytest.mark.tfx
def test_mirrored_measures_and_counts_in_the_same_way(mirrored):
    assert mirrored["steps"] == [10, 10]
    assert all(wait > 0 for wait in mirrored["waits"])
    assert mirrored["ceiling"]["examples_per_second"] > 0
