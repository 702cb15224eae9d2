"""Options that select a platform, and its functions, which are imported on call."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import click

from infeed.components.base.errors import InfeedError

_CHOOSE = "set --host for Kubeflow, or --project and --region for Vertex AI"


def platform_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `platform_function` to a command."""
    options = [
        click.option("--host", metavar="URL", help="Kubeflow: URL of the API.  [default: $KF_PIPELINES_ENDPOINT]"),
        click.option("--namespace", metavar="NAME", help="Kubeflow: profile to run in."),
        click.option("--project", metavar="ID", help="Vertex AI: Google Cloud project."),
        click.option("--region", metavar="NAME", help="Vertex AI: region, for example us-central1."),
        click.option("--endpoint", metavar="URL", help="Vertex AI: private endpoint of the API."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def platform_function(
    what: str,
    host: str | None,
    namespace: str | None,
    project: str | None,
    region: str | None,
    endpoint: str | None,
    **_: Any,
) -> Callable[..., Any]:
    """Return the function `what_kubeflow` or `what_vertex` for the selected platform, for example `submit_kubeflow`.

    Raises InfeedError if the options select no platform or mix two.
    """
    if host is None and project is None:
        host = os.environ.get("KF_PIPELINES_ENDPOINT")  # kfp's own variable
    vertex = {"--project": project, "--region": region, "--endpoint": endpoint}
    if host is not None:
        if given := [name for name, value in vertex.items() if value]:
            raise InfeedError(f"{given[0]} is for Vertex AI, and --host is for Kubeflow", do=_CHOOSE)
        return _later("kubeflow", what, host=host, namespace=namespace)
    missing = [name for name in ("--project", "--region") if not vertex[name]]
    if missing:
        words = "no --host, and no --project and --region" if len(missing) == 2 else f"no {missing[0]}"
        raise InfeedError(words, do=_CHOOSE)
    if namespace:
        raise InfeedError("--namespace is for Kubeflow, and --project is for Vertex AI", do=_CHOOSE)
    return _later("vertex", what, project=project, region=region, endpoint=endpoint)


def _later(platform: str, what: str, **where: Any) -> Callable[..., Any]:
    """Return the function with a late import, because the client of a platform takes seconds to import."""

    def call(*given: Any) -> Any:
        module = importlib.import_module(f"infeed.pipelines.cluster.submit.{platform}")
        return getattr(module, f"{what}_{platform}")(*given, **where)

    return call
