"""`infeed submit`: run a compiled job on Kubeflow Pipelines or Vertex AI."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
from rich.console import Console

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import CompiledJob, publish
from infeed.pipelines.cluster.job.disks import input_bytes, tight_disks
from infeed.pipelines.cluster.job.parameters import read_parameters
from infeed.pipelines.cluster.submit.run import (
    Run,
    RunSchedule,
    SubmissionOutcome,
    SubmitRequest,
    check_cron,
    follow,
)
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.nodes import show_nodes
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import echo, quiet

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


@click.command(
    name="submit",
    cls=Command,
    examples=(
        "infeed submit taxi.yaml --host http://localhost:8888 --wait",
        'infeed submit taxi.yaml --host http://localhost:8888 --cron "0 6 * * 1-5"',
        "infeed submit taxi.json --project my-project --region us-central1",
    ),
)
@click.argument("job", type=InputPath(), metavar="JOB")
@platform_options
@click.option("--name", metavar="NAME", help="Name of the run.  [default: pipeline name and time]")
@click.option(
    "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="Runtime parameter. May be repeated."
)
@click.option("--experiment", metavar="NAME", help="Experiment of the run.")
@click.option("--service-account", metavar="NAME", help="Service account of the steps.")
@click.option("--no-cache", is_flag=True, help="Execute every step, and ignore cached results.")
@click.option(
    "--cron", metavar="EXPRESSION", help="Create a schedule instead: minute, hour, day, month and day of week, in UTC."
)
@click.option("--wait", is_flag=True, help="Wait for the end of the run, and show its steps.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(job: str, cron: str | None, wait: bool, as_json: bool, **given: Any) -> None:
    """Run JOB, a compiled pipeline, on Kubeflow Pipelines or Vertex AI.

    The client of the platform finds the credentials: a service account token in a cluster, KF_PIPELINES_* variables, or
    Google's default credentials.

    The exit code is 0 if the run finished (without --wait: if it started), 1 if it failed, 2 if it was refused, 4 if
    its state is unknown, and 130 if waiting was interrupted.
    """
    # All options are checked before the platform's client is imported, which takes seconds.
    submit, compiled = platform_function("submit", **given), CompiledJob.read(job)
    request = SubmitRequest(
        compiled,
        given["name"] or f"{compiled.name} {datetime.now():%Y-%m-%d %H:%M:%S}",
        read_parameters(given["parameters"], compiled.parameters, compiled.name),
        given["experiment"],
        given["service_account"],
        cache=not given["no_cache"],
    )
    if cron is not None and wait:
        raise InfeedError("--cron is set together with --wait", do="follow the runs on their pages")
    expression = None if cron is None else check_cron(cron)
    # The steps fetch the project from the store, so it must be there before the run starts.
    publish(compiled)
    data = request.parameters.get("data", getattr(compiled.parameters.get("data"), "default", None))
    if data and (warning := tight_disks(compiled, lambda: input_bytes(compiled, data))):
        echo(f"warning: {warning}", err=True)
    if expression is not None:
        _schedule(platform_function("schedule", **given), request, expression, as_json)
        return
    with quiet(os.devnull) as console:
        run = submit(request)
        if not as_json:
            console.print(f"run   {run.name}\npage  {run.link}", soft_wrap=True, highlight=False)
        outcome = _wait(run, console, as_json) if wait else SubmissionOutcome(run, "started")
        if as_json:
            console.out(json.dumps(outcome.as_json(compiled.images), indent=1), highlight=False)
        else:
            console.print(outcome.as_text(compiled.images), soft_wrap=True)
    sys.exit(outcome.exit_code)


def _schedule(
    schedule: Callable[[SubmitRequest, str], RunSchedule], request: SubmitRequest, cron: str, as_json: bool
) -> None:
    with quiet(os.devnull) as console:
        made = schedule(request, cron)
        if as_json:
            console.out(json.dumps({"schedule": dataclasses.asdict(made)}, indent=1), highlight=False)
        else:
            console.print(f"schedule  {made.name}\npage      {made.link}", soft_wrap=True, highlight=False)
            if made.warning:
                console.print(f"warning: {made.warning}", soft_wrap=True, highlight=False)


def _wait(run: Run, console: Console, as_json: bool) -> SubmissionOutcome:
    """Follow the run to its end. Ctrl-C, or a platform that does not respond, stops the waiting but not the run."""
    status = None
    try:
        with show_nodes(
            console, "stops waiting, not the run", label="Ctrl-C", loading="starting", silent=as_json
        ) as on_change:
            for status in follow(run):
                on_change(status.steps)
    except KeyboardInterrupt:
        return SubmissionOutcome(run, "left", status)
    except InfeedError as error:
        return SubmissionOutcome(run, "unknown", status, reason=str(error))
    assert status is not None, "an unfinished run has a status"
    return SubmissionOutcome(run, status.state.value, status)
