"""Kubeflow Pipelines' client: the connection that its methods share."""

from __future__ import annotations

from typing import Any

from infeed.components.seams.seam import Seam

CLIENT = Seam(
    "kfp",
    "the response of a server that is not the API",
    ("kfp.client.client:Client@_run_api",),
    ("2.5.0", "2.16.1"),
    "nothing can be submitted to Kubeflow",
)


def api_client(client: Any) -> Any:
    """Return the connection that the methods of kfp's client share."""
    return client._run_api.api_client
