"""Keras' own `fit`, where a private name of Keras is gone, trains to the same weights."""

import logging

import keras
import loop_script as script
import numpy as np
import pytest
import tensorflow as tf
import trained

from infeed.components.base.errors import InfeedError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def without_a_name(take_away):
    take_away("keras.STEPS")


def test_it_trains_to_the_weights_of_our_steps_and_the_log_has_the_consequence(caplog):
    theirs = script.build()
    history = theirs.fit(script.data(), epochs=script.EPOCHS, validation_data=script.data(), verbose=0).history
    with caplog.at_level(logging.WARNING, "infeed"):
        ours, _, fitted = script.train_ours("one_device")
    trained.check_weights(ours, theirs, atol=1e-6)
    assert fitted.history.keys() == history.keys()
    np.testing.assert_allclose(fitted.history["val_loss"], history["val_loss"], rtol=1e-5)
    assert ours.steps_per_execution == 2  # not 4, which does not divide 10
    assert [epoch.steps for epoch in fitted.epochs] == [10, 10]
    assert all(0 < epoch.wait_seconds <= epoch.seconds for epoch in fitted.epochs)
    (record,) = caplog.records
    assert f"keras {keras.__version__}" in record.getMessage()
    assert "without checkpoints" in record.getMessage()


def test_it_measures_the_ceiling_and_ends_at_the_step_asked_for():
    model, strategy, fitted = script.train_ours("one_device", max_steps=12, epochs=5)
    assert int(model.optimizer.iterations) == 12
    ceiling = script.measure_ceiling(
        fitted.train_steps, fitted.meter, strategy, next(iter(fitted.train)), script.BATCH, seconds=0.1
    )
    assert ceiling.examples_per_second > 0


def test_rows_that_steps_would_gather_come_as_batches():
    expected = script.build()
    expected.fit(script.row_batches().dataset(), epochs=2, steps_per_epoch=script.STEPS, verbose=0)
    model, _, _ = script.train_ours("one_device", train=script.row_batches())
    trained.check_weights(model, expected, atol=1e-6)


def test_several_devices_and_resuming_are_refused():
    with pytest.raises(InfeedError, match="mirrored") as raised:
        script.train_ours(tf.distribute.MirroredStrategy(["CPU:0"]))
    assert raised.value.where == "option strategy"
    with pytest.raises(InfeedError, match="step 4") as raised:
        script.train_ours("one_device", start_step=4)
    assert raised.value.where == "option checkpoint_seconds"
