import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import WorkerContext
from infeed.components.trainer import distribution
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


@pytest.fixture
def gpus(monkeypatch):
    """gpus(2): as on a machine that has two."""

    def pretend(count):
        names = [tf.config.LogicalDevice(f"/device:GPU:{i}", "GPU") for i in range(count)]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: names if kind == "GPU" else [])

    return pretend


def test_on_the_host_nothing_is_copied():
    default = tf.distribute.get_strategy()
    assert distribution.distributing(default) is default
    for strategy in (default, tf.distribute.MirroredStrategy(["/CPU:0"])):
        assert distribution.device_steps(strategy) == ()


def test_steps_gather_on_every_device_of_the_strategy_in_this_process(gpus):
    default = tf.distribute.get_strategy()
    assert distribution.gathering_devices(default) == ("/device:CPU:0",)
    (cpu,) = distribution.gathering_devices(tf.distribute.MirroredStrategy(["/CPU:0"]))
    assert cpu.endswith("device:CPU:0")
    gpus(2)
    assert distribution.gathering_devices(default) == ("/device:GPU:0",)


def test_one_device_is_fed_on_the_first_gpu_and_the_plan_says_so(gpus):
    gpus(2)
    default = tf.distribute.get_strategy()
    fed = distribution.distributing(default)
    assert isinstance(fed, tf.distribute.OneDeviceStrategy)
    assert fed.extended.worker_devices[0].endswith("GPU:0")
    (step,) = distribution.device_steps(default)
    assert step.does == "copies the next batch to GPU:0 while the step runs"


def test_the_plan_names_the_gpus_that_a_batch_is_dealt_out_to(monkeypatch):
    monkeypatch.setattr(distribution, "accelerators", lambda strategy: ("/device:GPU:0", "/device:GPU:1"))
    (step,) = distribution.device_steps(tf.distribute.get_strategy())
    assert step.does == "distributes the next batch to GPU:0, GPU:1 while the step runs"
    assert step.reason == "the step's batch is already on the device; text stays on the host"
