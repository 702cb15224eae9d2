"""Which machines are what jobs and pools is in test_vertex.py."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.vertex import Endpoint, Training, VertexOptions

KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
ENDPOINT = Endpoint("taxi", "n1-standard-2", "serving:1")


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Training, {"machine": "n1", "replicas": 0}, "replicas is 0"),
        (Training, {"machine": "n1", "disk_gb": 0}, "disk_gb is 0"),
        (Training, {"machine": "n1", "timeout_hours": 0}, "timeout_hours is 0"),
        (Training, {"machine": "n1", "parameter_servers": -1}, "parameter_servers is -1"),
        (Training, {"machine": "n1", "accelerators": 2}, "accelerators is 2"),
        (Training, {"machine": "n1", "accelerator": "NVIDIA_L4", "accelerators": 0}, "accelerators is 0"),
        (Training, {"machine": "ct5lp-hightpu-4t", "replicas": 2}, "replicas is 2(.|\n)*chips of one machine"),
        (Training, {"machine": "ct5lp-hightpu-4t", "tpu_topology": "2by2"}, "tpu_topology is '2by2'"),
        (Training, {"machine": "ct5lp-hightpu-4t", "tpu_topology": "2x4"}, "2x4 is a slice of 8 chips"),
        (Endpoint, {"name": "e", "machine": "n1", "image": "i", "min_replicas": 3}, "replicas"),
        (Endpoint, {"name": "e", "machine": "n1", "image": "i", "traffic": 101}, "traffic is 101"),
        (VertexOptions, {"project": "p", "region": "r", "labels": {"Team": "a"}}, "labels is 'Team'"),
        (VertexOptions, {"project": "p", "region": "r", "kms_key": "mine"}, "kms_key is 'mine'"),
        (VertexOptions, {"project": "p", "region": "r", "kms_key": KEY, "endpoint": ENDPOINT}, "kms_key"),
    ],
)
def test_a_wrong_option_is_an_error(kind: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        kind(**given)


@pytest.mark.parametrize(
    ("training", "is_tpu"),
    [
        (Training("ct5lp-hightpu-8t", tpu_topology="2x4"), True),
        (Training("ct5lp-hightpu-1t"), True),
        (Training("cloud-tpu", "TPU_V3", 8), True),
        (Training("n1-standard-8", "NVIDIA_TESLA_T4"), False),
    ],
)
def test_a_tpu_is_told_by_its_machine_or_by_its_kind(training: Training, is_tpu: bool) -> None:
    assert training.is_tpu is is_tpu


def test_what_vertex_ai_has_is_taken() -> None:
    made = VertexOptions("p", "r", labels={"team": "flora"}, kms_key=KEY, training=Training("n1"))
    assert made.training is not None
    assert made.training.replicas == 1
