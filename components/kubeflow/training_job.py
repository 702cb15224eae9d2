"""Options of a Trainer on several machines of a Kubernetes cluster, and the JobSet or TrainJob that they describe.

Both kinds run one Indexed Job named `node`, whose pod 0 is the chief. Each pod gets TF_CONFIG: its addresses are
JobSet's host names of the pods, and Kubernetes fills in the pod's number.

https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2
https://www.kubeflow.org/docs/components/trainer/
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base.checks import at_least, check_fields, refused, require
from infeed.components.kubeflow.message import present

Kind = Literal["jobset", "trainjob"]
RuntimeKind = Literal["ClusterTrainingRuntime", "TrainingRuntime"]

NODE = "node"
"""Name of the Job and of its container: the name that Kubeflow Trainer requires."""
PORT = 2222
INDEX = "JOB_COMPLETION_INDEX"
"""Environment variable for the number of a machine. Kubernetes sets it in the pods of an Indexed Job."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
_RESTARTS = 3


@dataclass(frozen=True)
class TrainingJob:
    """Identical machines of a cluster that train together. Machine 0 is the chief.

    Attributes:
      machines: number of machines.
      kind: jobset for a JobSet; trainjob for a TrainJob of Kubeflow Trainer 2.2 or later.
      runtime: training runtime of a TrainJob.
      runtime_kind: kind of the runtime.
      restarts: number of times that the JobSet restarts all machines after a failure. Defaults to 3. For a TrainJob,
          the runtime sets it.
      namespace: namespace of the job. Defaults to that of the step.
      service_account: service account of the machines. Defaults to that of the step.
      labels: labels of the job, for example `kueue.x-k8s.io/queue-name`.
      timeout: seconds after which the step deletes the job and fails, including the wait for machines.
    """

    machines: int
    kind: Kind = "jobset"
    runtime: str | None = None
    runtime_kind: RuntimeKind = "ClusterTrainingRuntime"
    restarts: int | None = None
    namespace: str | None = None
    service_account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    timeout: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(self, 1, "machines", "timeout")
        at_least(self, 0, "restarts")
        is_trainjob = self.kind == "trainjob"
        require(bool(self.runtime) == is_trainjob, self, "runtime", "set the training runtime for kind: trainjob")
        if is_trainjob and self.restarts is not None:
            what = f"restarts is {self.restarts}, but the runtime of a TrainJob sets it"
            raise refused(self, "restarts", "set spec.template.spec.failurePolicy.maxRestarts of the runtime", what)


@dataclass(frozen=True)
class Place:
    """Name, namespace, service account and owner of a job."""

    name: str
    namespace: str
    service_account: str | None = None  # service account of the machines. None for the namespace's default
    owner: Mapping[str, Any] | None = None  # the step's pod as ownerReference, so that the job is deleted with it


@dataclass(frozen=True)
class Api:
    """Custom resource of a job: `plural` in paths, `kind` in objects. `completed` is the condition for success."""

    group: str
    version: str
    plural: str
    kind: str
    completed: str


APIS: Mapping[Kind, Api] = {
    "jobset": Api("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", "Completed"),
    "trainjob": Api("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", "Complete"),
}


def job_object(options: TrainingJob, pod: Mapping[str, Any], place: Place, command: Sequence[str]) -> dict[str, Any]:
    """Return a JobSet or TrainJob whose machines run `command`.

    `pod` is the PodTemplateSpec of a machine, with one container.
    """
    api = APIS[options.kind]
    literal = [word.replace("$", "$$") for word in command]  # Kubernetes replaces $(NAME), and $$ by $
    container = {**pod["spec"]["containers"][0], "command": literal}
    hosts = [f"{place.name}-{NODE}-0-{n}.{place.name}.{place.namespace}.svc:{PORT}" for n in range(options.machines)]
    task = (
        f'{{"type": "worker", "index": $({INDEX})}}'  # Kubernetes replaces $(NAME) by an earlier variable in the list
    )
    cluster = [
        {"name": INDEX, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}},
        {"name": "TF_CONFIG", "value": f'{{"cluster": {{"worker": {json.dumps(hosts)}}}, "task": {task}}}'},
    ]
    container["env"] = [*cluster, *container.get("env", ())]
    spec = {**pod["spec"], **present({"serviceAccountName": place.service_account})}
    describe = _train_job if options.kind == "trainjob" else _job_set
    return {
        "apiVersion": f"{api.group}/{api.version}",
        "kind": api.kind,
        "metadata": present(
            {
                "name": place.name,
                "namespace": place.namespace,
                "labels": dict(options.labels),
                "ownerReferences": [dict(place.owner)] if place.owner else None,
            }
        ),
        "spec": describe(options, {**pod, "spec": spec}, container),
    }


def _job_set(options: TrainingJob, pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Any]:
    # A machine cannot rejoin MultiWorkerMirroredStrategy, so one failed pod fails the Job, and all restart together.
    job = {
        "completionMode": "Indexed",
        "completions": options.machines,
        "parallelism": options.machines,
        "backoffLimit": 0,
        "template": {**pod, "spec": {**pod["spec"], "containers": [container], "restartPolicy": "Never"}},
    }
    restarts = _RESTARTS if options.restarts is None else options.restarts
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": restarts},
        "replicatedJobs": [{"name": NODE, "replicas": 1, "template": {"spec": job}}],
    }


def _train_job(options: TrainingJob, pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Any]:
    # Kubeflow Trainer reads these fields of the container from `trainer`, and only the others from a patch.
    own = {name: container[name] for name in ("image", "command", "env")}
    others = {name: container.get(name) for name in ("volumeMounts", "securityContext")}
    patch = {**pod, "spec": {**pod["spec"], "containers": [present({"name": NODE, **others})]}}
    spec = {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": patch}}}]}
    runtime_patch = {"manager": "tfx-infeed/trainer", "trainingRuntimeSpec": {"template": {"spec": spec}}}
    return {
        "runtimeRef": {"apiGroup": APIS["trainjob"].group, "kind": options.runtime_kind, "name": options.runtime},
        "trainer": {"numNodes": options.machines, **own, **present({"resourcesPerNode": container.get("resources")})},
        "runtimePatches": [runtime_patch],
    }
