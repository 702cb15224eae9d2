"""Settings of pods: what is refused, names of Kubernetes, and how a node takes those of `default`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError, OptionError
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import (
    KeySource,
    check_distinct,
    check_keys,
    check_object,
    check_variables,
    check_volume,
    merged,
    of_machines_alone,
)

TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}


def affinity(required: Any) -> dict[str, Any]:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"pod": {"spec": {"affinity": {"nodeAffinity": terms}}}}


def preferred(term: Any) -> dict[str, Any]:
    terms = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"pod": {"spec": {"affinity": {"nodeAffinity": terms}}}}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a secret for nothing": ({"secrets": [{"name": "store"}]}, "secrets[0].env"),
    "a relative folder": ({"volumes": [{"claim": "c", "mount": "mnt"}]}, "volumes[0].mount"),
    "a part of no pod": ({"pod": {"labels": {"team": "rides"}}}, "pod"),
    "metadata that a template has not": ({"pod": {"metadata": {"name": "a"}}}, "pod"),
    "a container": ({"pod": {"spec": {"containers": [{"name": "node"}]}}}, "pod"),
    "no quantity": ({"shared_memory": "lots"}, "shared_memory"),
    "bytes as cores": ({"cpu": "16Gi"}, "cpu"),
    "memory without a unit": ({"memory": 16}, "memory"),
    "a size without quantity": (
        {"ephemeral_volumes": [{"mount": "/s3", "size": "500GB"}]},
        "ephemeral_volumes[0].size",
    ),
    "a name of no variable": ({"env": {"A B": "1"}}, "env"),
    "a value of no label": ({"pod": {"metadata": {"labels": {"team": "a b"}}}}, "pod"),
    "a key to no variable": ({"secrets": [{"name": "s", "env": {"key": "A B"}}]}, "secrets[0].env"),
    "a name of no Secret": ({"secrets": [{"name": "A_B", "mount": "/s"}]}, "secrets[0].name"),
    "a mounted Secret with a dot": ({"secrets": [{"name": "my.certs", "mount": "/s"}]}, "secrets[0].name"),
    "a claim of Kubeflow's name": ({"volumes": [{"claim": "kfp-launcher", "mount": "/v"}]}, "volumes[0].claim"),
    "two volumes of one name": (
        {"secrets": [{"name": "store", "mount": "/s"}], "config_maps": [{"name": "store", "mount": "/c"}]},
        "secrets",
    ),
    "a claim that is mounted twice": (
        {"volumes": [{"claim": "c", "mount": "/a", "path": "a"}, {"claim": "c", "mount": "/b", "path": "b"}]},
        "volumes",
    ),
    "a variable that is set twice": ({"env": {"A": "1"}, "secrets": [{"name": "s", "env": {"k": "A"}}]}, "env"),
    "a key of no label": ({"pod": {"metadata": {"labels": {"bad key!": "a"}}}}, "pod"),
    "a key of no annotation": ({"pod": {"metadata": {"annotations": {"bad key!": "a"}}}}, "pod"),
    "a toleration of a value that exists": (
        {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
        "tolerations[0].value",
    ),
    "a toleration for a time that nobody counts": (
        {"tolerations": [{"key": "k", "seconds": 9}]},
        "tolerations[0].seconds",
    ),
    "a request above the limit": ({"cpu": 1, "cpu_request": 2}, "cpu_request"),
    "a key of no Secret": ({"secrets": [{"name": "s", "env": {"a b": "A"}}]}, "secrets[0].env"),
    "a long key of no Secret": ({"secrets": [{"name": "s", "env": {"k" * 254: "A"}}]}, "secrets[0].env"),
    "a folder above the volume": ({"volumes": [{"claim": "c", "mount": "/v", "path": "a/../.."}]}, "volumes[0].path"),
    "a folder of the machine": ({"volumes": [{"claim": "c", "mount": "/v", "path": "/a"}]}, "volumes[0].path"),
    "a folder with a colon": ({"volumes": [{"claim": "c", "mount": "/v:ro"}]}, "volumes[0].mount"),
    "a name of no StorageClass": (
        {"ephemeral_volumes": [{"mount": "/v", "size": "1Gi", "storage_class": "A b"}]},
        "ephemeral_volumes[0].storage_class",
    ),
    "a toleration of any value": ({"tolerations": [{"effect": "NoSchedule"}]}, "tolerations[0].key"),
    "a toleration of no taint": ({"tolerations": [{"key": "a b", "operator": "Exists"}]}, "tolerations[0].key"),
    "a number as a label": ({"pod": {"metadata": {"labels": {"commit": 1}}}}, "pod"),
    "a registry's Secret without name": ({"pod": {"spec": {"imagePullSecrets": ["registry"]}}}, "pod"),
    "a field of no affinity": ({"pod": {"spec": {"affinity": {"nodeAffinity": {"required": []}}}}}, "pod"),
    "no term of an affinity": (affinity([TERM]), "pod"),
    "an affinity without terms": (affinity({"terms": [TERM]}), "pod"),
    "a term in place of terms": (affinity({"nodeSelectorTerms": TERM}), "pod"),
    "text in place of terms": (affinity({"nodeSelectorTerms": "zone"}), "pod"),
    "a term of another field": (affinity({"nodeSelectorTerms": [{"matchExpresions": []}]}), "pod"),
    "another field beside the terms": (affinity({"nodeSelectorTerms": [TERM], "weight": 1}), "pod"),
    "a weight in words": (preferred({"preference": TERM, "weight": "high"}), "pod"),
    "another field of a preference": (preferred({"preference": TERM, "weight": 1, "wait": 2}), "pod"),
    "a registry's Secret of a wrong name": ({"pod": {"spec": {"imagePullSecrets": [{"name": "Registry"}]}}}, "pod"),
    "a number as a registry's Secret": ({"pod": {"spec": {"imagePullSecrets": [{"name": 1}]}}}, "pod"),
    "a preference without weight": (preferred({"preference": TERM}), "pod"),
    "a preference without term": (preferred({"weight": 1}), "pod"),
    "no time": ({"timeout": 0}, "timeout"),
}


@pytest.mark.parametrize(("given", "where"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_told_with_their_path(given: dict[str, Any], where: str) -> None:
    with pytest.raises(InfeedError) as error:
        schema.read(Resources, given, "deploy.resources.Trainer")
    assert error.value.where.endswith(where)


@pytest.mark.parametrize("given", [{"labels": {"a b": "c"}}, {"service_account": "A_B"}, {"namespace": "A"}])
def test_names_of_a_training_job_are_those_of_kubernetes(given: dict[str, Any]) -> None:
    with pytest.raises(InfeedError) as error:
        schema.read(Deploy, {"training": {"machines": 2, **given}}, "deploy")
    assert error.value.where == "deploy.training"


def test_names_that_kubernetes_takes_are_taken() -> None:
    given = {
        "secrets": [
            {"name": "my.certs", "env": {"tls.crt": "A", "..data": "C"}},
            {"name": "store", "env": {"k": "B"}, "mount": "/s"},
        ],
        "volumes": [{"claim": "a" * 63, "mount": "/v", "path": "photos/..2024"}],
        "tolerations": [{"operator": "Exists"}, {"key": "nvidia.com/gpu", "value": ""}],
        "pod": {
            "metadata": {
                "labels": {"kueue.x-k8s.io/queue-name": "team", "Team_1": ""},
                "annotations": {"example.com/a": "any text at all: {{x}}"},
            },
            **affinity({"nodeSelectorTerms": [TERM]})["pod"],
        },
    }
    assert schema.read(Resources, given, "deploy.resources.Trainer").volumes is not None


def test_a_name_that_only_the_entry_default_adds_is_checked_too() -> None:
    default = Resources(secrets=(KeySource("store", {"k": "A"}),))
    with pytest.raises(InfeedError, match="'A' is set twice"):
        Deploy(resources={"default": default, "Trainer": Resources(env={"A": "1"})}).resources_of("Trainer")


@pytest.mark.parametrize(("kind", "setting"), [(Resources, "service_account"), (Deploy, "priority_class")])
def test_a_setting_that_no_step_has_is_told_with_its_way(kind: Any, setting: str) -> None:
    with pytest.raises(InfeedError, match=r"leave it out: .*(submit --service-account|no priority)"):
        schema.read(kind, {setting: "x"}, "deploy")


def test_a_request_above_the_limit_of_default_is_told_with_its_node() -> None:
    deploy = Deploy(resources={"default": Resources(cpu="1"), "Trainer": Resources(cpu_request="2")})
    with pytest.raises(InfeedError) as error:
        deploy.resources_of("Trainer")
    assert error.value.where == "deploy.resources.Trainer.cpu_request"


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


def test_lists_of_two_parts_of_a_pod_come_one_after_the_other() -> None:
    one, other = {"spec": {"tolerations": [{"key": "a"}], "priority": 1}}, {"spec": {"tolerations": [{"key": "b"}]}}
    assert merged(one, other) == {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}], "priority": 1}}


def test_what_a_step_cannot_have_is_named() -> None:
    spec = {"hostNetwork": True, "affinity": {"podAffinity": {}, "nodeAffinity": {}}, "imagePullSecrets": []}
    assert of_machines_alone({"spec": spec}) == ["spec.affinity.podAffinity", "spec.hostNetwork"]


def test_variables_and_labels_of_default_stay() -> None:
    deploy = Deploy(
        resources={
            "default": Resources(env={"A": "1", "B": "2"}, pod=labelled(team="rides"), timeout=60),
            "Trainer": Resources(env={"B": "3"}, pod=labelled(gpu="yes")),
        }
    )
    found = deploy.resources_of("Trainer")
    assert found.env == {"A": "1", "B": "3"}
    assert found.pod == labelled(team="rides", gpu="yes")
    assert found.timeout == 60


@dataclass
class Options:
    name: str = ""
    env: str = ""
    labels: str = ""
    volumes: str = ""


@pytest.mark.parametrize("name", ["a", "my-store", "a1-b2", "a" * 63])
def test_a_name_that_kubernetes_and_kubeflow_take(name: str) -> None:
    options = Options(name)
    check_object(options, "name")
    check_volume(options, "name")


@pytest.mark.parametrize(
    "name",
    [
        *("my.certs", "a" * 64, "A", "a_b", "-a", "a-", ""),
        *("kfp-launcher", "gcs-scratch", "s3-scratch", "minio-scratch", "dot-local-scratch", "var-run-argo"),
        *("tmp-dir-argo", "shm", "ephemeral-0"),
    ],
)
def test_a_name_of_no_volume(name: str) -> None:
    with pytest.raises(OptionError) as error:
        check_volume(Options(name), "name")
    assert error.value.option == "name"


def test_an_object_that_is_not_mounted_may_have_dots() -> None:
    check_object(Options("my.certs.example"), "name")


def test_one_name_for_two_options_names_both() -> None:
    with pytest.raises(OptionError, match="by secrets and volumes"):
        check_distinct(Options(), {"secrets": ["a", "b"], "volumes": ["b"]}, "mounted")


@pytest.mark.parametrize("variable", ["A B", "1A", "KFP_POD_NAME", "TF_CONFIG", "ARGO_TEMPLATE", "INFEED_PROJECT"])
def test_a_variable_that_no_pod_may_have(variable: str) -> None:
    with pytest.raises(OptionError):
        check_variables(Options(), "env", [variable])


@pytest.mark.parametrize("key", ["team", "Team_1", "kueue.x-k8s.io/queue-name", "a" * 63])
def test_a_key_that_kubernetes_takes(key: str) -> None:
    check_keys(Options(), "labels", [key])


@pytest.mark.parametrize("key", ["", "bad key!", "a" * 64, "/a", "example.com/", "Example.com/a", "a/b/c"])
def test_a_key_that_kubernetes_refuses(key: str) -> None:
    with pytest.raises(OptionError):
        check_keys(Options(), "labels", [key])
