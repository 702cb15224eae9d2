"""What can be seen of it without a cluster; with one, `test_parameter_server` trains by it."""

import keras
import numpy as np
import pytest
import server_script as script
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.trainer import asynchronous
from infeed.components.trainer.steps import prepare

pytestmark = pytest.mark.slow  # TensorFlow and Keras take seconds to load


@pytest.mark.parametrize(
    ("optimizer", "complaint"),
    [
        (lambda: keras.optimizers.SGD(gradient_accumulation_steps=2), r"gradient_accumulation_steps is 2"),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), r"float16(.|\n)*use bfloat16"),
    ],
)
def test_an_optimizer_that_updates_in_a_condition_is_refused(optimizer, complaint):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer(), "mse")
    with pytest.raises(InfeedError, match=complaint):
        asynchronous.check_model(model)


def test_changing_by_difference_trains_to_what_keras_trains_to():
    ours, theirs = script.build(), script.build()
    prepare(ours, tf.distribute.get_strategy(), script.script.data().element_spec)
    step = tf.function(asynchronous.with_delta_updates(ours.train_step, ours))
    plain = tf.function(theirs.train_step)
    for batch in script.script.data():
        step(batch)
        plain(batch)
    values = zip(
        [*ours.variables, *ours.optimizer.variables], [*theirs.variables, *theirs.optimizer.variables], strict=True
    )
    for one, other in values:
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6, err_msg=one.path)
