from __future__ import annotations

from typing import Any

import pytest

from infeed.pipelines.cluster.compile.pods import executor_config, platform_spec, pod_template
from infeed.pipelines.cluster.job.compiled import read_tasks
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import EphemeralVolume, KeySource, Toleration, Volume

SPEC: dict[str, Any] = {
    "root": {"dag": {"tasks": {name: {"componentRef": {"name": name}} for name in ("Gen", "Trainer")}}},
    "components": {name: {"executorLabel": f"{name}_executor"} for name in ("Gen", "Trainer")},
    "deploymentSpec": {"executors": {f"{name}_executor": {"container": {}} for name in ("Gen", "Trainer")}},
}


def test_only_nodes_that_need_a_certain_machine_are_in_it() -> None:
    deploy = Deploy(resources={"Trainer": Resources(node_selector={"pool": "gpu"}), "Gen": Resources(cpu="1")})
    assert platform_spec(read_tasks(SPEC), deploy) == {
        "platforms": {
            "kubernetes": {
                "deploymentSpec": {"executors": {"Trainer_executor": {"nodeSelector": {"labels": {"pool": "gpu"}}}}}
            }
        }
    }


def test_there_is_none_where_any_machine_will_do() -> None:
    assert platform_spec(read_tasks(SPEC), Deploy(resources={"default": Resources(cpu="1")})) is None


@pytest.mark.slow  # imports kfp
def test_a_node_selector_is_kfp_kubernetes_own_message() -> None:
    from google.protobuf import json_format
    from kfp.kubernetes import kubernetes_executor_config_pb2 as pb2

    message = pb2.KubernetesExecutorConfig(node_selector=pb2.NodeSelector(labels={"pool": "gpu"}))
    assert executor_config(Resources(node_selector={"pool": "gpu"})) == json_format.MessageToDict(message)


@pytest.mark.stack
@pytest.mark.slow
def test_a_toleration_is_kfp_kubernetes_own_message() -> None:
    from google.protobuf import json_format
    from kfp.kubernetes import kubernetes_executor_config_pb2 as pb2

    if not hasattr(pb2, "Toleration"):
        pytest.skip("kfp-kubernetes for protobuf 3 has no tolerations")
    message = pb2.KubernetesExecutorConfig(
        tolerations=[
            pb2.Toleration(key="gpu", operator="Equal", value="yes", effect="NoExecute", toleration_seconds=60),
            pb2.Toleration(key="spot", operator="Exists"),
        ]
    )
    tolerations = [Toleration("gpu", "Equal", "yes", "NoExecute", 60), Toleration("spot", "Exists")]
    assert executor_config(Resources(tolerations=tolerations)) == json_format.MessageToDict(message)


POD: dict[str, Any] = {
    "metadata": {"labels": {"team": "rides"}, "annotations": {"sidecar.istio.io/inject": "true"}},
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "preference": {"matchExpressions": [{"key": "spot", "operator": "Exists"}]}}
                ],
            }
        },
    },
}
EVERYTHING = Resources(
    secrets=(KeySource("store", {"accesskey": "AWS_ACCESS_KEY_ID"}), KeySource("certs", mount="/etc/certs")),
    config_maps=(KeySource("proxy", {"url": "HTTPS_PROXY"}, mount="/etc/proxy", optional=True),),
    volumes=(Volume("photos", "/mnt/photos", "2026"),),
    ephemeral_volumes=(EphemeralVolume("/cache", "100Gi", "fast"), EphemeralVolume("/scratch", "1Gi")),
    shared_memory="4Gi",
    timeout=3600,
    pod=POD,
)


@pytest.mark.stack
@pytest.mark.slow
def test_every_setting_is_kfp_kubernetes_own_message() -> None:
    """Parsed by the package where it has all messages, and by names alone where it is the old one."""
    from google.protobuf import json_format
    from kfp.kubernetes import kubernetes_executor_config_pb2 as pb2

    config = executor_config(EVERYTHING)
    if "empty_dir_mounts" not in pb2.KubernetesExecutorConfig.DESCRIPTOR.fields_by_name:
        pytest.skip("kfp-kubernetes for protobuf 3 lacks most messages")
    message = json_format.ParseDict(config, pb2.KubernetesExecutorConfig())
    assert json_format.MessageToDict(message) == config


def test_names_stand_in_the_old_and_the_new_field() -> None:
    config = executor_config(EVERYTHING)
    [store] = config["secretAsEnv"]
    assert store["secretName"] == store["secretNameParameter"]["runtimeValue"]["constant"] == "store"
    assert store["keyToEnv"] == [{"secretKey": "accesskey", "envVar": "AWS_ACCESS_KEY_ID"}]
    [claim] = config["pvcMount"]
    assert claim["constant"] == claim["pvcNameParameter"]["runtimeValue"]["constant"] == "photos"
    assert config["configMapAsEnv"][0]["optional"] is config["configMapAsVolume"][0]["optional"] is True
    assert config["activeDeadlineSeconds"] == "3600"


def test_a_node_without_settings_has_no_config() -> None:
    assert executor_config(Resources(cpu="4", env={"A": "1"})) == {}


def test_a_part_of_a_pod_becomes_the_settings_of_a_step() -> None:
    found = executor_config(Resources(pod=POD))
    assert found["podMetadata"] == POD["metadata"]
    assert [one["secretName"] for one in found["imagePullSecret"]] == ["registry"]
    assert [term["matchExpressions"][0]["key"] for term in found["nodeAffinity"]] == ["zone", "spot"]
    assert [term.get("weight") for term in found["nodeAffinity"]] == [None, 5]


def test_shared_memory_is_the_mount_that_backends_read() -> None:
    [mount] = executor_config(Resources(shared_memory="4Gi"))["emptyDirMounts"]
    assert mount == {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "4Gi"}


TRAINER = Resources(
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
    found = pod_template(TRAINER, "taxi:1")
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
    metadata = pod_template(TRAINER, "taxi:1")["metadata"]
    assert metadata["labels"]["team"] == "rides"
    assert metadata["annotations"] == {"sidecar.istio.io/inject": "true"}


def test_the_pod_fits_the_models_of_kubernetes() -> None:
    """They are the models that Kubeflow publishes."""
    import kubeflow_trainer_api.models as models

    for given in (TRAINER, Resources()):
        found: dict[str, Any] = pod_template(given, "taxi:1")
        assert models.IoK8sApiCoreV1PodTemplateSpec.from_dict(found).to_dict() == found
