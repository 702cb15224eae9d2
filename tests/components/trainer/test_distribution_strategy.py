import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import WorkerContext
from infeed.components.trainer.distribution import (
    check_batch_size,
    check_for_tpu,
    check_xla,
    make_strategy,
    strategy_name,
)

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load


@pytest.mark.parametrize("name", ["auto", "one_device"])
def test_one_device_is_the_default_strategy(name):
    strategy = make_strategy(name)
    assert strategy_name(strategy) == "one_device"
    assert strategy.num_replicas_in_sync == 1


def test_a_strategy_of_one_process_is_refused_where_several_train():
    with pytest.raises(InfeedError, match=r"'mirrored' trains in one process, but TF_CONFIG names 2 workers"):
        make_strategy("mirrored", WorkerContext(0, 2))


def test_a_batch_is_dealt_out_in_equal_parts():
    class Three:
        num_replicas_in_sync = 3

    check_batch_size(96, Three())
    with pytest.raises(InfeedError, match=r"batch_size is 100, which 3 replicas(.|\n)*such as 102"):
        check_batch_size(100, Three())


def test_xla_is_for_one_device():
    check_xla(True, tf.distribute.get_strategy())
    check_xla(None, tf.distribute.MirroredStrategy(["CPU:0"]))
    with pytest.raises(InfeedError, match=r"strategy mirrored"):
        check_xla(True, tf.distribute.MirroredStrategy(["CPU:0"]))


def test_a_machine_without_a_tpu_is_told_so():
    with pytest.raises(InfeedError, match=r"there is no TPU(.|\n)*TPU VM"):
        make_strategy("tpu")


@pytest.mark.parametrize(
    "spec",
    [
        tf.TensorSpec([None, 1], tf.string),
        tf.TensorSpec([None, None], tf.float32),
        tf.RaggedTensorSpec([None, None], tf.int64),
        tf.SparseTensorSpec([None, 3], tf.float32),
    ],
)
def test_features_that_a_tpu_cannot_take_are_refused_by_name(spec):
    check_for_tpu({"x": tf.TensorSpec([None, 3], tf.float32)})
    with pytest.raises(InfeedError, match=r"a TPU does not accept the feature 'odd'"):
        check_for_tpu({"odd": spec})
