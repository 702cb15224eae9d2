"""`infeed submit`: run a compiled job on Kubeflow Pipelines or Vertex AI."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from infeed.components.errors import InfeedError
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.nodes import show_nodes
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import quiet
from infeed.pipelines.job.compiled import CompiledJob
from infeed.pipelines.job.parameters import read_parameters
from infeed.pipelines.submit.run import NewLines, Run, RunState, SubmissionOutcome, SubmitRequest, follow

LOG_LINES = 20  # printed from the end of the log of a failed step
_CHOOSE = "give --host for Kubeflow, or --project and --region for Vertex AI"


@click.command(name="submit", cls=Command)
@click.argument("job", type=InputPath(), metavar="JOB")
@click.option("--host", metavar="URL", help="Kubeflow: URL of the API.  [default: $KF_PIPELINES_ENDPOINT]")
@click.option("--namespace", metavar="NAME", help="Kubeflow: profile to run in.")
@click.option("--project", metavar="ID", help="Vertex AI: Google Cloud project.")
@click.option("--region", metavar="NAME", help="Vertex AI: region, for example us-central1.")
@click.option("--endpoint", metavar="URL", help="Vertex AI: private endpoint of the API.")
@click.option("--name", metavar="NAME", help="Name of the run.  [default: pipeline name and time]")
@click.option(
    "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="Runtime parameter. May be repeated."
)
@click.option("--experiment", metavar="NAME", help="Experiment to list the run under.")
@click.option("--service-account", metavar="NAME", help="Service account of the steps.")
@click.option("--no-cache", is_flag=True, help="Execute every step, and ignore cached results.")
@click.option("--wait", is_flag=True, help="Wait for the end of the run, and show its steps.")
@click.option("--logs", is_flag=True, help="Wait like --wait, and print the logs of the steps.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(job: str, wait: bool, logs: bool, as_json: bool, **given: Any) -> None:
    """Run JOB, a compiled pipeline, on Kubeflow Pipelines or Vertex AI.

    The client of the platform finds the credentials: a service account token in a cluster, KF_PIPELINES_* variables, or
    Google's default credentials.

    The exit code is 0 if the run finished (without --wait: if it started), 1 if it failed, 2 if it was refused, 4 if
    its state is unknown, and 130 if waiting was interrupted.
    """
    submit, request = _platform(**given), _request(CompiledJob.read(job), **given)
    with quiet(os.devnull) as console:
        run = submit(request)
        if not as_json:
            console.print(f"run   {run.name}\npage  {run.link}", soft_wrap=True, highlight=False)
        outcome = _wait(run, console, logs, as_json) if wait or logs else SubmissionOutcome(run, "started")
        if as_json:
            console.out(json.dumps(outcome.as_json(request.job.images), indent=1), highlight=False)
        else:
            console.print(outcome.as_text(request.job.images), soft_wrap=True)
    sys.exit(outcome.exit_code)


def _platform(
    host: str | None, namespace: str | None, project: str | None, region: str | None, endpoint: str | None, **_: Any
) -> Callable[[SubmitRequest], Run]:
    """Return the function that starts a run on the chosen platform; calling it imports the platform's client."""
    if host is None and project is None:
        host = os.environ.get("KF_PIPELINES_ENDPOINT")  # kfp's own variable
    vertex = {"--project": project, "--region": region, "--endpoint": endpoint}
    if host is not None:
        if given := [name for name, value in vertex.items() if value]:
            raise InfeedError(f"{given[0]} is for Vertex AI, and --host is for Kubeflow", do=_CHOOSE)
        return functools.partial(_on_kubeflow, host=host, namespace=namespace)
    missing = [name for name in ("--project", "--region") if not vertex[name]]
    if missing:
        what = "no --host, and no --project and --region" if len(missing) == 2 else f"no {missing[0]}"
        raise InfeedError(what, do=_CHOOSE)
    if namespace:
        raise InfeedError("--namespace is for Kubeflow, and --project is for Vertex AI", do=_CHOOSE)
    return functools.partial(_on_vertex, project=project, region=region, endpoint=endpoint)


def _on_kubeflow(request: SubmitRequest, **where: Any) -> Run:
    from infeed.pipelines.submit.kubeflow import submit_kubeflow

    return submit_kubeflow(request, **where)


def _on_vertex(request: SubmitRequest, **where: Any) -> Run:
    from infeed.pipelines.submit.vertex import submit_vertex

    return submit_vertex(request, **where)


def _request(
    job: CompiledJob,
    name: str | None,
    parameters: tuple[str, ...],
    experiment: str | None,
    service_account: str | None,
    no_cache: bool,
    **_: Any,
) -> SubmitRequest:
    return SubmitRequest(
        job,
        name or f"{job.name} {datetime.now():%Y-%m-%d %H:%M:%S}",
        read_parameters(parameters, job.parameters, job.name),
        experiment,
        service_account,
        cache=not no_cache,
    )


def _wait(run: Run, console: Console, logs: bool, as_json: bool) -> SubmissionOutcome:
    """Follow the run to its end. Ctrl-C, or a platform that stops answering, ends the waiting but not the run."""
    new_lines = NewLines(run)
    status = None
    try:
        with show_nodes(
            console, "stops waiting, not the run", label="Ctrl-C", loading="starting", silent=as_json
        ) as on_change:
            for status in follow(run):
                on_change(status.steps)
                for name, line in new_lines(status.steps) if logs and not as_json else ():
                    console.print(Text.assemble((f"{name}: ", "dim"), line), soft_wrap=True)
    except KeyboardInterrupt:
        return SubmissionOutcome(run, "left", status)
    except InfeedError as error:
        return SubmissionOutcome(run, "unknown", status, reason=str(error))
    assert status is not None, "a run has a status before it has ended"
    failed = status.failed if status.state is RunState.FAILED else None
    return SubmissionOutcome(run, status.state.value, status, run.log_tail(failed, LOG_LINES) if failed else ())
