from __future__ import annotations

from typing import Any

import pytest

from infeed.pipelines.compile.kubeflow import executor_config, platform_spec
from infeed.pipelines.deploy.options import Deploy, Resources, Toleration

SPEC: dict[str, Any] = {
    "root": {"dag": {"tasks": {name: {"componentRef": {"name": name}} for name in ("Gen", "Trainer")}}},
    "components": {name: {"executorLabel": f"{name}_executor"} for name in ("Gen", "Trainer")},
    "deploymentSpec": {"executors": {f"{name}_executor": {"container": {}} for name in ("Gen", "Trainer")}},
}


def test_only_nodes_that_need_a_certain_machine_are_in_it() -> None:
    deploy = Deploy(resources={"Trainer": Resources(node_selector={"pool": "gpu"}), "Gen": Resources(cpu="1")})
    assert platform_spec(SPEC, deploy) == {
        "platforms": {
            "kubernetes": {
                "deploymentSpec": {"executors": {"Trainer_executor": {"nodeSelector": {"labels": {"pool": "gpu"}}}}}
            }
        }
    }


def test_there_is_none_where_any_machine_will_do() -> None:
    assert platform_spec(SPEC, Deploy(resources={"default": Resources(cpu="1")})) is None


@pytest.mark.slow  # imports kfp
def test_a_node_selector_is_kfp_kubernetes_own_message() -> None:
    from google.protobuf import json_format
    from kfp.kubernetes import kubernetes_executor_config_pb2 as pb2

    message = pb2.KubernetesExecutorConfig(node_selector=pb2.NodeSelector(labels={"pool": "gpu"}))
    assert executor_config(Resources(node_selector={"pool": "gpu"})) == json_format.MessageToDict(message)


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
