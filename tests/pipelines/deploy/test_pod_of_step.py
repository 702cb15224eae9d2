"""Fields of a pod that a step takes, as Kubernetes checks them."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy.pod import PodOfStep

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXISTS = {"matchExpressions": [{"key": "spot", "operator": "Exists"}]}


def node_affinity(**given: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": given}}


@pytest.mark.parametrize(
    "given",
    [
        node_affinity(),
        node_affinity(**{REQUIRED: {"nodeSelectorTerms": [EXISTS, {"matchFields": []}]}}),
        node_affinity(**{PREFERRED: [{"weight": 100, "preference": EXISTS}]}),
        {"affinity": {"podAffinity": {"anything": [1]}}, "imagePullSecrets": [{"name": "registry.example"}]},
    ],
)
def test_fields_as_kubernetes_writes_them_are_read(given: dict[str, Any]) -> None:
    assert schema.to_plain(schema.read(PodOfStep, given, exact=True), defaults=False).keys() <= given.keys()


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (node_affinity(**{REQUIRED: [EXISTS]}), REQUIRED),
        (node_affinity(**{PREFERRED: [{"weight": 0, "preference": EXISTS}]}), "weight"),
        (node_affinity(**{PREFERRED: [{"weight": 101, "preference": EXISTS}]}), "weight"),
        (node_affinity(**{PREFERRED: [{"preference": EXISTS}]}), f"{PREFERRED}[0]"),
        (
            node_affinity(**{REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "a", "operator": "In"}]}]}}),
            "values",
        ),
        (
            node_affinity(**{PREFERRED: [{"weight": 1, "preference": {"matchFields": [{**EXISTS}]}}]}),
            "matchFields[0]",
        ),
        ({"imagePullSecrets": [{"name": "Registry"}]}, "imagePullSecrets[0].name"),
    ],
)
def test_a_wrong_field_is_named(given: dict[str, Any], where: str) -> None:
    with pytest.raises(InfeedError) as error:
        schema.read(PodOfStep, given, exact=True)
    assert error.value.where.endswith(where)
