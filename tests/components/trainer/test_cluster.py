import json

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import WorkerContext
from infeed.components.trainer.cluster import (
    OutputDirs,
    adopt_cluster_spec,
    chief_writes,
    jax_workers,
    tf_config,
    worker_context,
)

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


def environment(task, index, cluster=CLUSTER):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})}


@pytest.mark.parametrize(
    ("environ", "workers"),
    [
        ({}, WorkerContext(0, 1)),
        ({"TF_CONFIG": "{}"}, WorkerContext(0, 1)),
        (environment("chief", 0), WorkerContext(0, 3)),
        (environment("worker", 0), WorkerContext(1, 3)),
        (environment("worker", 1), WorkerContext(2, 3)),
        (environment("worker", 0, {"worker": ["a:1", "b:1"]}), WorkerContext(0, 2)),  # the first worker is the chief
        (environment("worker", "1", {"worker": ["a:1", "b:1"]}), WorkerContext(1, 2)),  # some launchers write text
    ],
)
def test_workers_are_numbered_as_tensorflow_does(environ, workers):
    assert worker_context(environ) == workers


@pytest.mark.parametrize(
    ("environ", "workers"),
    [
        ({}, WorkerContext(0, 1)),
        (environment("worker", 0), WorkerContext(1, 3)),
        ({"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_PROCESS_ID": "2", "JAX_NUM_PROCESSES": "4"}, WorkerContext(2, 4)),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "1"}, WorkerContext(1, 2)),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, WorkerContext(0, 1)),
    ],
)
def test_workers_of_jax_are_those_of_tf_config_or_of_jaxs_own_variables(environ, workers):
    assert jax_workers(environ) == workers


@pytest.mark.parametrize(
    "environ",
    [
        {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "2"},
        {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_PROCESS_ID": "2", "JAX_NUM_PROCESSES": "2"},
    ],
)
def test_processes_of_jax_that_are_not_numbered_are_refused(environ):
    with pytest.raises(InfeedError, match="JAX_PROCESS_ID is") as raised:
        jax_workers(environ)
    assert raised.value.where == "environment variables of JAX"


def test_a_task_that_does_not_train_is_refused():
    with pytest.raises(InfeedError, match=r"the task ps 0 does not train(.|\n)*TF_CONFIG"):
        worker_context(environment("ps", 0))


# As https://cloud.google.com/vertex-ai/docs/training/distributed-training shows it.
VERTEX = {
    "cluster": {"workerpool0": ["job-workerpool0-0:2222"], "workerpool1": ["job-1-0:2222", "job-1-1:2222"]},
    "environment": "cloud",
    "task": {"type": "workerpool1", "index": 1, "trial": ""},
    "job": "{}",
}


def test_the_pools_of_vertex_ai_become_tensorflows_tasks():
    assert tf_config(VERTEX) == {
        "cluster": {"chief": ["job-workerpool0-0:2222"], "worker": ["job-1-0:2222", "job-1-1:2222"]},
        "task": {"type": "worker", "index": 1},
    }


def test_a_machine_of_vertex_ai_knows_its_number_whatever_tf_config_says():
    environ = {"CLUSTER_SPEC": json.dumps(VERTEX), **environment("master", 0, {"master": ["a:1"]})}
    adopt_cluster_spec(environ)
    assert worker_context(environ) == WorkerContext(2, 3)


def test_without_a_cluster_spec_tf_config_stays():
    environ = environment("chief", 0)
    adopt_cluster_spec(environ)
    assert environ == environment("chief", 0)


@pytest.mark.parametrize(("name", "read"), [("CLUSTER_SPEC", adopt_cluster_spec), ("TF_CONFIG", worker_context)])
def test_a_broken_variable_is_told(name, read):
    with pytest.raises(InfeedError, match=rf"not valid JSON(.|\n)*{name}"):
        read({name: "{"})


def test_the_chief_writes_to_the_places_themselves():
    places = OutputDirs("model", "run", "checkpoints")
    with chief_writes(places, WorkerContext(0, 2)) as given:
        assert given is places


def test_what_other_workers_write_is_removed(tmp_path):
    places = OutputDirs(str(tmp_path / "model"), str(tmp_path / "run"), str(tmp_path / "checkpoints"))
    with chief_writes(places, WorkerContext(1, 2)) as given:
        scratch = tmp_path.__class__(given.model)
        scratch.mkdir()
        (scratch / "saved_model.pb").write_text("")
    assert not scratch.exists()
    assert not list(tmp_path.iterdir())


def test_the_open_port_is_told(caplog):
    from infeed.components.trainer.cluster import warn_of_open_port

    config = {"cluster": {"worker": ["a:2222", "b:3333"]}, "task": {"type": "worker", "index": 1}}
    warn_of_open_port({"TF_CONFIG": json.dumps(config)})
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "port 3333 of all addresses" in record.getMessage()
