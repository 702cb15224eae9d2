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
    "a request above the limit": ({"cpu": 1, "cpu_request": 2}, "cpu_request"),
    "no time": ({"timeout": 0}, "timeout"),
}


@pytest.mark.parametrize(("given", "where"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_told_with_their_path(given: dict[str, Any], where: str) -> None:
    with pytest.raises(InfeedError) as error:
        schema.read(Resources, given, "deploy.resources.Trainer")
    assert error.value.where.endswith(where)


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
