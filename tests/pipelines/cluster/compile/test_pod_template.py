"""The pod is checked by the models that Kubeflow publishes."""

from __future__ import annotations

from typing import Any

from infeed.pipelines.cluster.compile.pod_template import pod_template
from infeed.pipelines.deploy.options import Resources
from infeed.pipelines.deploy.pod import EphemeralVolume, KeySource, Toleration, Volume

SPOT = {"weight": 5, "preference": {"matchExpressions": [{"key": "spot", "operator": "Exists"}]}}
POD: dict[str, Any] = {
    "metadata": {"labels": {"team": "rides"}, "annotations": {"sidecar.istio.io/inject": "true"}},
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [SPOT]}},
    },
}
EVERYTHING = Resources(
    cpu="8",
    memory="30Gi",
    cpu_request="4",
    ephemeral_storage="50Gi",
    accelerator="nvidia.com/gpu",
    accelerators=2,
    env={"LEVEL": "1"},
    node_selector={"pool": "gpu"},
    tolerations=(Toleration("nvidia.com/gpu", "Exists", effect="NoExecute", seconds=60),),
    secrets=(KeySource("store", {"accesskey": "AWS_ACCESS_KEY_ID"}, "/secrets", optional=True),),
    config_maps=(KeySource("settings", {"level": "LOG_LEVEL"}), KeySource("files", mount="/config")),
    volumes=(Volume("photos", "/mnt/photos", "2024"),),
    ephemeral_volumes=(EphemeralVolume("/cache", "100Gi", "fast"),),
    shared_memory="4Gi",
    pod=POD,
)


def test_every_setting_of_the_trainer_reaches_its_machines() -> None:
    found = pod_template(EVERYTHING, "taxi:1")
    [container] = found["spec"]["containers"]
    assert container["image"] == "taxi:1"
    assert container["resources"] == {
        "limits": {"cpu": "8", "memory": "30Gi", "ephemeral-storage": "50Gi", "nvidia.com/gpu": "2"},
        "requests": {"cpu": "4"},
    }
    secret = {"secretKeyRef": {"name": "store", "key": "accesskey", "optional": True}}
    assert container["env"] == [
        {"name": "LEVEL", "value": "1"},
        {"name": "INFEED_EPHEMERAL_STORAGE", "value": str(50 << 30)},
        {"name": "AWS_ACCESS_KEY_ID", "valueFrom": secret},
        {"name": "LOG_LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}}},
    ]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert [*mounts.values()] == ["/mnt/photos", "/secrets", "/config", "/cache", "/dev/shm"]
    assert [*mounts] == [volume["name"] for volume in found["spec"]["volumes"]]
    assert container["volumeMounts"][0]["subPath"] == "2024"
    [seconds] = [toleration["tolerationSeconds"] for toleration in found["spec"]["tolerations"]]
    assert seconds == 60


def test_a_part_of_a_pod_is_merged_as_it_stands() -> None:
    more = {"spec": {**POD["spec"], "hostNetwork": True, "securityContext": {"fsGroup": 7}}}
    spec = pod_template(Resources(pod=more), "taxi:1")["spec"]
    assert spec["affinity"] == POD["spec"]["affinity"]
    assert (spec["hostNetwork"], spec["securityContext"]["fsGroup"]) == (True, 7)
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_machines_pass_the_level_restricted_of_pod_security_and_may_write_into_volumes() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    spec = pod_template(Resources(), "taxi:1")["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "fsGroup": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_istio_gets_no_sidecar_unless_the_trainer_asks_for_one() -> None:
    assert pod_template(Resources(), "taxi:1")["metadata"]["labels"] == {"sidecar.istio.io/inject": "false"}
    metadata = pod_template(EVERYTHING, "taxi:1")["metadata"]
    assert metadata["labels"]["team"] == "rides"
    assert metadata["annotations"] == {"sidecar.istio.io/inject": "true"}


def test_the_pod_fits_the_models_of_kubernetes() -> None:
    import kubeflow_trainer_api.models as models

    for given in (EVERYTHING, Resources()):
        found: dict[str, Any] = pod_template(given, "taxi:1")
        assert models.IoK8sApiCoreV1PodTemplateSpec.from_dict(found).to_dict() == found
