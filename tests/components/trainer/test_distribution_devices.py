import pytest
import tensorflow as tf

from infeed.components.trainer import distribution

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load


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
    assert (
        distribution.device_steps(default)
        == distribution.device_steps(tf.distribute.MirroredStrategy(["/CPU:0"]))
        == ()
    )


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
