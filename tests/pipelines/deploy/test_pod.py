"""Settings of pods: what is refused, and how a node takes those of `default`."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.components import schema
from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import KeySource, NodeAffinity

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a secret for nothing": ({"secrets": [{"name": "store"}]}, "secrets[0].env"),
    "a relative folder": ({"volumes": [{"claim": "c", "mount": "mnt"}]}, "volumes[0].mount"),
    "an unknown comparison": ({"node_affinity": [{"key": "zone", "operator": "Is"}]}, "node_affinity[0].operator"),
    "a comparison without values": ({"node_affinity": [{"key": "zone"}]}, "node_affinity[0].values"),
    "a weight out of range": (
        {"node_affinity": [{"key": "zone", "operator": "Exists", "weight": 101}]},
        "node_affinity[0].weight",
    ),
    "no quantity": ({"shared_memory": "lots"}, "shared_memory"),
    "bytes as cores": ({"cpu": "16Gi"}, "cpu"),
    "memory without a unit": ({"memory": 16}, "memory"),
    "a size without quantity": (
        {"ephemeral_volumes": [{"mount": "/s3", "size": "500GB"}]},
        "ephemeral_volumes[0].size",
    ),
    "a name of no variable": ({"env": {"A B": "1"}}, "env"),
    "a value of no label": ({"labels": {"team": "a b"}}, "labels"),
    "a key to no variable": ({"secrets": [{"name": "s", "env": {"key": "A B"}}]}, "secrets[0].env"),
    "a name of no Secret": ({"secrets": [{"name": "A_B", "mount": "/s"}]}, "secrets[0].name"),
    "a comparison with two numbers": (
        {"node_affinity": [{"key": "n", "operator": "Gt", "values": ["1", "2"]}]},
        "node_affinity[0].values",
    ),
    "a toleration of a value that exists": (
        {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
        "tolerations[0].value",
    ),
    "a toleration for a time that nobody counts": (
        {"tolerations": [{"key": "k", "seconds": 9}]},
        "tolerations[0].seconds",
    ),
    "a request above the limit": ({"cpu": 1, "cpu_request": 2}, "cpu_request"),
    "no time": ({"timeout": 0}, "timeout"),
}


@pytest.mark.parametrize(("given", "where"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_told_with_their_path(given: dict[str, Any], where: str) -> None:
    with pytest.raises(InfeedError) as error:
        schema.read(Resources, given, "deploy.resources.Trainer")
    assert error.value.where.endswith(where)


@pytest.mark.parametrize(("kind", "setting"), [(Resources, "service_account"), (Deploy, "priority_class")])
def test_a_setting_that_no_step_has_is_told_with_its_way(kind: Any, setting: str) -> None:
    with pytest.raises(InfeedError, match=r"leave it out: .*(submit --service-account|no priority)"):
        schema.read(kind, {setting: "x"}, "deploy")


def test_settings_are_read_as_kubernetes_writes_them() -> None:
    given = {
        "secrets": [{"name": "store", "env": {"accesskey": "AWS_ACCESS_KEY_ID"}}],
        "node_affinity": [{"key": "zone", "values": ["a"]}],
        "cpu_request": "500m",
    }
    read = schema.read(Resources, given, "resources")
    assert read.secrets == (KeySource("store", {"accesskey": "AWS_ACCESS_KEY_ID"}),)
    assert read.node_affinity == (NodeAffinity("zone", "In", ("a",)),)
    assert read.cpu_request == "500m"


def test_a_request_above_the_limit_of_default_is_told_with_its_node() -> None:
    deploy = Deploy(resources={"default": Resources(cpu="1"), "Trainer": Resources(cpu_request="2")})
    with pytest.raises(InfeedError) as error:
        deploy.resources_of("Trainer")
    assert error.value.where == "deploy.resources.Trainer.cpu_request"


def test_variables_and_labels_of_default_stay() -> None:
    deploy = Deploy(
        resources={
            "default": Resources(env={"A": "1", "B": "2"}, labels={"team": "rides"}, timeout=60),
            "Trainer": Resources(env={"B": "3"}, labels={"gpu": "yes"}),
        }
    )
    found = deploy.resources_of("Trainer")
    assert found.env == {"A": "1", "B": "3"}
    assert found.labels == {"team": "rides", "gpu": "yes"}
    assert found.timeout == 60
