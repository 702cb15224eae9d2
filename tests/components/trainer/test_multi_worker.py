"""Two processes on one machine train together, as Kubeflow and Vertex AI would start them.

They hold their columns in memory, and their steps gather rows from them; the one that they are compared with keeps them
on disk and is given batches: the batches are the same.
"""

import json
import signal

import numpy as np
import pytest
import trained

from infeed.components.feed.options import FeedOptions

pytestmark = [pytest.mark.tfx, pytest.mark.image]  # here `test_cluster_machines` trains on two machines

OPTIONS = {"label": "kind", "epochs": 3, "steps_per_call": 1, "checkpoint_seconds": 1e-6, "callbacks_fn": "callbacks"}
KILLED_AFTER = 6  # steps: in the middle of the second epoch


def tf_config(task, index, ports):
    cluster = {"chief": [f"localhost:{ports[0]}"], "worker": [f"localhost:{port}" for port in ports[1:]]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})}


def cluster_spec(task, index, ports):
    pools = {"workerpool0": [f"localhost:{ports[0]}"], "workerpool1": [f"localhost:{port}" for port in ports[1:]]}
    pool = {"chief": "workerpool0", "worker": "workerpool1"}[task]
    return {
        "CLUSTER_SPEC": json.dumps({"cluster": pools, "task": {"type": pool, "index": index}, "environment": "cloud"})
    }


def test_two_workers_killed_and_started_again_train_to_the_weights_of_one(table, train, start, hold_ports, tmp_path):
    together, given = tmp_path / "together", (table[0], "class", "table")
    on_disk = FeedOptions(batch_size=16, tier="disk", cache_dir=str(tmp_path / "cache"))

    def start_both(describe, **env):
        ports = hold_ports(2)
        places = [describe(*task, ports) | env for task in (("chief", 0), ("worker", 0))]
        return [start(together, *given, env=place, **OPTIONS) for place in places]

    killed = start_both(tf_config, KILL_AFTER=str(KILLED_AFTER))
    alone = train(*given, place=tmp_path / "alone", feed=on_disk, **OPTIONS)
    ends = [worker.finish() for worker in killed]
    # The first to be killed is missed by the other, which may end of that before it comes to its own step.
    assert -signal.SIGKILL in [code for code, _ in ends], ends
    assert 0 not in [code for code, _ in ends], ends
    for worker in start_both(cluster_spec):
        code, output = worker.finish()
        assert code == 0, output
        assert "Epoch 1/3" not in output

    # Sums over workers are added up in another order.
    trained.check_weights(trained.weights(together), trained.weights(alone), atol=1e-5)
    history = trained.history(together)
    for name, values in trained.history(alone).items():  # of evaluation too, over 32 rows in batches of 16
        np.testing.assert_allclose(history[name], values, rtol=1e-4, err_msg=name)

    profile = trained.profile(together)
    assert (profile["strategy"], profile["hosts"], profile["replicas"]) == ("multi_worker_mirrored", 2, 2)
    assert [step["name"] for step in profile["plan"]["steps"]][-2:] == ["columns", "gather"]
    assert [epoch["examples"] for epoch in profile["epochs"]] == [64, 64, 64]
    assert all(max(epoch["workers_wait_seconds"]) == epoch["wait_seconds"] > 0 for epoch in profile["epochs"])
    assert (together / "model" / "saved_model.pb").exists()
    assert len(list((together / "run" / "train").iterdir())) == 2  # TensorBoard logs: the chief's alone, of each start


INPUT = """
import tensorflow as tf

from infeed.components import Input

def batches(spec):
    first = spec.workers.index * spec.batch_size  # of the global batch, this worker makes its own rows
    def batch(number):
        rows = tf.range(first, first + spec.batch_size) + 16 * number
        x = tf.cast(rows % 7, tf.float32)[:, tf.newaxis] - 3
        return {"x": x, "z": tf.zeros_like(x)}, tf.cast(x[:, 0] < 0, tf.int64)
    return Input(tf.data.Dataset.range(4, output_type=tf.int32).map(batch)) if spec.training else None
"""


def test_two_workers_with_an_input_of_their_own_train_to_the_weights_of_one(
    table, train, start, hold_ports, answers_alike, tmp_path
):
    (tmp_path / "inputs.py").write_text(INPUT)
    options = {**OPTIONS, "epochs": 2, "input_fn": f"{tmp_path}/inputs.py:batches"}
    together, given, ports = tmp_path / "together", (table[0], "class", "table"), hold_ports(2)
    waited = {"chief": 2e-5, "worker": 1e-4}  # seconds that their meters say, fewer than any epoch takes
    workers = [
        start(together, *given, env=tf_config(task, 0, ports) | {"WAITED": str(seconds)}, **options)
        for task, seconds in waited.items()
    ]
    alone = train(*given, place=tmp_path / "alone", **options)
    for worker in workers:
        code, output = worker.finish()
        assert code == 0, output
    trained.check_weights(trained.weights(together), trained.weights(alone), atol=1e-5)
    answers_alike(together, table[1])
    for epoch in trained.profile(together)["epochs"]:
        assert epoch["workers_wait_seconds"] == [2e-5, 1e-4]
        assert epoch["wait_seconds"] == 1e-4
