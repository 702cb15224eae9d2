"""`infeed run`."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from infeed.components.errors import InfeedError
from infeed.pipelines.commands.exits import EXIT_FAILED, errors
from infeed.pipelines.commands.project_options import project_options
from infeed.pipelines.commands.words import command, short
from infeed.pipelines.config import PipelineConfig, resumable
from infeed.pipelines.local.live import show_nodes
from infeed.pipelines.local.logs import quiet
from infeed.pipelines.local.nodes import RunReport
from infeed.pipelines.project import read_project
from infeed.pipelines.resolve import Overrides, resolve

if TYPE_CHECKING:
    from infeed.pipelines.local.outcome import Outcome


@click.command()
@project_options
@click.option("--from", "from_node", help="Run only this node and what depends on it.", metavar="NODE")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def run(project: str, from_node: str | None, as_json: bool, debug: bool, **overrides: Any) -> None:
    """Run a pipeline on this machine, from data to a pushed model."""
    with errors(as_json, debug):
        config = resolve(read_project(project), Overrides(**overrides))
        _check_root(config.root)
        log = Path(config.logs) / "run.log"
        with quiet(log) as console:
            report, outcome = _run(config, console, log, from_node, as_json)
            _tell(report, outcome, config, log, console, as_json)
    sys.exit(0 if report.succeeded else EXIT_FAILED)


def _check_root(root: str) -> None:
    if "://" in root:
        raise InfeedError(
            f"a run on this machine keeps its metadata in a file, which {root} has no place for",
            where="root",
            do="Give a folder of this machine; deploy.root is that of a compiled pipeline.",
        )


def _run(
    config: PipelineConfig, console: Console, log: Path, from_node: str | None, as_json: bool
) -> tuple[RunReport, Outcome | None]:
    """TFX is imported here and not before: it takes many seconds, and a mistake is told without it."""
    view = contextlib.nullcontext(lambda nodes: None) if as_json else show_nodes(console, short(log))
    with view as on_change:
        with _no_garbage_collection():
            from infeed.pipelines.local.outcome import read_outcome
            from infeed.pipelines.local.runner import run_local
            from infeed.pipelines.pipeline import create_pipeline

        pipeline = create_pipeline(resumable(config))
        report = run_local(pipeline, on_change=on_change, from_node=from_node)
    return report, read_outcome(config) if report.succeeded else None


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """For imports: what they make stays for good, and looking through it again and again cost 1.5 of 14 s."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _tell(
    report: RunReport, outcome: Outcome | None, config: PipelineConfig, log: Path, console: Console, as_json: bool
) -> None:
    if as_json:
        result = {
            "succeeded": report.succeeded,
            "seconds": report.seconds,
            "nodes": [dataclasses.asdict(node) for node in report.nodes],
            "outcome": dataclasses.asdict(outcome) if outcome else None,
            "log": str(log),
        }
        console.out(json.dumps(result, indent=1), highlight=False)
    elif outcome:
        console.print(_summary(outcome, config), soft_wrap=True)
    else:
        console.print(_failure(report, log), soft_wrap=True)


def _summary(outcome: Outcome, config: PipelineConfig) -> Text:
    """One line a fact; not a table, so that a long path can be copied whole."""
    lines = [(name, f"{value:.4g}", "") for name, value in outcome.metrics.items()]
    lines.append(("blessed", "yes", "green") if outcome.blessed else ("blessed", "no", "bold red"))
    lines += [("", reason, "") for reason in outcome.reasons]
    if outcome.pushed:
        lines.append(("pushed to", short(outcome.pushed), ""))
    waited = f"{outcome.wait_fraction:.1%} of training time after the first epoch: {outcome.verdict}"
    lines += [("waited for input", waited, ""), ("report", short(outcome.report), "")]
    if outcome.pushed:
        lines.append(("predict with", f"{command()} predict {short(outcome.pushed)} {_example(config)}", "bold"))
    return Text("\n").join([Text(""), *(Text.assemble(f"{name:<20}", (value, style)) for name, value, style in lines)])


def _failure(report: RunReport, log: Path) -> Text:
    failed = report.failed
    assert failed is not None, "only a failed run is told of here"
    words = [word for word in sys.argv[1:] if word != "--json"]
    if "--from" in words:
        at = words.index("--from")
        del words[at : at + 2]
    return Text.assemble(
        "\n",
        (f"{failed.name} failed", "bold red"),
        f"\n{failed.error}\n\n",
        f"log: {short(log)}\n",
        f"once that is mended, run from there on: {' '.join([command(), *words])} --from {failed.name}",
    )


def _example(config: PipelineConfig) -> str:
    """Something to predict that is there: a picture of the data, or the table."""
    if config.source != "images":
        delimiter = "" if config.delimiter == "," else f" --delimiter {shlex.quote(config.delimiter)}"
        return f"{short(config.data)}{delimiter}"
    from infeed.components.example_gen.sources.images import find_images

    return short(find_images(config.data).images[0].path)
