"""Trainings on several devices of one process, and of two."""

import json

import pytest
import trained

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]


@pytest.mark.image  # the two processes have two devices each
@pytest.mark.parametrize("devices", [4, 8])
def test_devices_train_to_the_weights_of_one(table, train, on_one_device, on_jax, monkeypatch, devices):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count={devices}")
    place = train(table[0], "class", "table", **on_jax)
    trained.check_alike(place, on_one_device)
    assert trained.profile(place)["replicas"] == devices


def of_tf_config(index, port):
    machines = {"chief": [f"localhost:{port}"], "worker": ["localhost:1"]}
    task = {"type": ["chief", "worker"][index], "index": 0}
    return {"TF_CONFIG": json.dumps({"cluster": machines, "task": task})}


def of_jax(index, port):
    return {
        "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": str(index),
    }


@pytest.mark.parametrize("cluster", [of_tf_config, pytest.param(of_jax, marks=pytest.mark.image)])
def test_two_processes_train_to_the_weights_of_one_device(
    table, start, hold_ports, on_one_device, on_jax, tmp_path, cluster
):
    [port] = hold_ports(1)
    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    workers = [start(tmp_path, table[0], "class", "table", env=env | cluster(i, port), **on_jax) for i in range(2)]
    for worker in workers:
        code, output = worker.finish()
        assert code == 0, output
    trained.check_alike(tmp_path, on_one_device)
    made = trained.profile(tmp_path)
    assert (made["replicas"], made["hosts"]) == (4, 2)
    assert all(len(epoch["workers_wait_seconds"]) == 2 for epoch in made["epochs"])


def test_a_batch_that_the_devices_cannot_share_is_refused(table, train, on_jax, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=5")
    with pytest.raises(InfeedError, match=r"24(.|\n)*5 devices"):
        train(table[0], "class", "table", **on_jax)


def test_one_device_of_several_processes_is_refused(monkeypatch):
    from infeed.components.trainer.on_jax.devices import Devices
    from infeed.components.trainer.options import TrainOptions

    monkeypatch.setenv("TF_CONFIG", of_tf_config(0, 1)["TF_CONFIG"])
    with pytest.raises(InfeedError, match="2 processes") as raised:
        Devices.start(TrainOptions("m:f", "y", backend="jax", strategy="one_device"))
    assert raised.value.where == "option strategy"
