"""The objects are checked by the models that Kubeflow publishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import OptionError
from infeed.components.kubeflow.training_job import Place, TrainingJob, job_object

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "taxi-x7k2p-1", "uid": "1-2-3"}
PLACE = Place("infeed-a1", "team", "pipeline-runner", OWNER)
POD = {
    "metadata": {"labels": {"team": "taxi"}},
    "spec": {
        "containers": [
            {
                "name": "node",
                "image": "taxi:1",
                "env": [{"name": "LEVEL", "value": "1"}],
                "resources": {"limits": {"cpu": "8"}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "nodeSelector": {"pool": "gpu"},
    },
}
COMMAND = ["python", "-m", "machine", "$(HOME)"]
TRAINJOB = TrainingJob(3, "trainjob", runtime="plain")
Check = Callable[[Any], None]


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"machines": 0}, "machines"),
        ({"machines": 2, "kind": "tfjob"}, "kind"),
        ({"machines": 2, "kind": "trainjob"}, "runtime"),
        ({"machines": 2, "runtime": "plain"}, "runtime"),
        ({"machines": 2, "kind": "trainjob", "runtime": "plain", "restarts": 1}, "restarts"),
        ({"machines": 2, "timeout": 0}, "timeout"),
    ],
)
def test_an_option_that_cannot_be_is_named(given: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionError) as error:
        TrainingJob(**given)
    assert error.value.option == option


def test_the_options_travel_as_plain_data() -> None:
    options = TrainingJob(2, restarts=1, labels={"kueue.x-k8s.io/queue-name": "gpus"}, timeout=3600)
    assert schema.read(TrainingJob, schema.to_plain(options, defaults=False)) == options


def test_a_job_set_restarts_all_machines_together(check_kubernetes: Check) -> None:
    found = job_object(TrainingJob(3, restarts=5, labels={"queue": "gpus"}), POD, PLACE, COMMAND)
    check_kubernetes(found)
    assert found["metadata"] == {
        "name": "infeed-a1",
        "namespace": "team",
        "labels": {"queue": "gpus"},
        "ownerReferences": [OWNER],
    }
    assert found["spec"]["failurePolicy"] == {"maxRestarts": 5}
    job = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"], job["backoffLimit"]) == (3, 3, "Indexed", 0)
    pod = job["template"]
    assert pod["metadata"] == POD["metadata"]
    assert (pod["spec"]["restartPolicy"], pod["spec"]["serviceAccountName"]) == ("Never", "pipeline-runner")
    assert pod["spec"]["nodeSelector"] == {"pool": "gpu"}


def test_a_train_job_patches_what_its_trainer_cannot_say(check_kubernetes: Check) -> None:
    found = job_object(TRAINJOB, POD, PLACE, COMMAND)
    check_kubernetes(found)
    assert found["spec"]["runtimeRef"]["name"] == "plain"
    trainer = found["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["image"]) == (3, "taxi:1")
    assert trainer["resourcesPerNode"] == {"limits": {"cpu": "8"}}
    [patch] = found["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    spec = patch["template"]["spec"]["template"]["spec"]
    assert spec["containers"] == [{"name": "node", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}]
    assert (spec["serviceAccountName"], spec["nodeSelector"]) == ("pipeline-runner", {"pool": "gpu"})


@pytest.mark.parametrize("options", [TrainingJob(2), TrainingJob(2, "trainjob", runtime="plain")], ids=["set", "train"])
def test_kubernetes_makes_tf_config_of_the_pod_s_number(options: TrainingJob) -> None:
    spec = job_object(options, POD, Place("j", "team"), COMMAND)["spec"]
    container = (
        spec.get("trainer") or spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    )
    index, config, level = container["env"]
    assert level == {"name": "LEVEL", "value": "1"}
    field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert index == {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": field}}}
    assert json.loads(config["value"].replace("$(JOB_COMPLETION_INDEX)", "1")) == {
        "cluster": {"worker": ["j-node-0-0.j.team.svc:2222", "j-node-0-1.j.team.svc:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    assert container["command"][-1] == "$$(HOME)"  # which Kubernetes makes $(HOME) again
