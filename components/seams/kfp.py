"""Kubeflow Pipelines' client: its configuration and the connection that its methods share."""

from __future__ import annotations

from typing import Any

from infeed.components.seams.seam import Seam

CLIENT = Seam(
    "kfp",
    "retries and timeouts of requests to Kubeflow",
    ("kfp.client.client:Client@_run_api", "kfp.client.client:Client._load_config"),
    ("2.5.0", "2.16.1"),
    "nothing can be submitted to Kubeflow",
)


def configuration_of(client: Any, *arguments: Any, **named: Any) -> Any:
    """Return the configuration that kfp's client makes from the arguments of its constructor."""
    from kfp import client as kfp_client

    return kfp_client.Client._load_config(client, *arguments, **named)


def api_client(client: Any) -> Any:
    """Return the connection that the methods of kfp's client share."""
    return client._run_api.api_client
