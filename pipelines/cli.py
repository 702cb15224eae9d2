"""The command `infeed`."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from infeed.pipelines.build_cli import build
from infeed.pipelines.compile_cli import compile_
from infeed.pipelines.config import TEMPLATES, Overrides, PipelineConfig, read_project, resolve, resumable
from infeed.pipelines.doctor_cli import doctor
from infeed.pipelines.exits import EXIT_FAILED, errors
from infeed.pipelines.ingest_cli import ingest
from infeed.pipelines.inspect_cli import inspect
from infeed.pipelines.live import show_nodes
from infeed.pipelines.logs import quiet
from infeed.pipelines.new import create_project
from infeed.pipelines.nodes import RunReport
from infeed.pipelines.project_options import project_options
from infeed.pipelines.rehearse_cli import rehearse_
from infeed.pipelines.submit_cli import submit

if TYPE_CHECKING:
    from infeed.pipelines.outcome import Outcome


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tfx-infeed")
def main() -> None:
    """TFX components that keep accelerators fed."""


@main.command()
@project_options
@click.option("--from", "from_node", help="Run only this node and what depends on it.", metavar="NODE")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def run(project: str, from_node: str | None, as_json: bool, debug: bool, **overrides: Any) -> None:
    """Run a pipeline on this machine, from data to a pushed model."""
    with errors(as_json, debug):
        config = resolve(read_project(project), Overrides(**overrides))
        log = Path(config.root) / "logs" / "run.log"
        with quiet(log) as console:
            report, outcome = _run(config, console, log, from_node, as_json)
            _tell(report, outcome, config, log, console, as_json)
    sys.exit(0 if report.succeeded else EXIT_FAILED)


@main.command()
@click.argument("template", metavar=f"{{{'|'.join(TEMPLATES)}}}")
@click.argument("folder", metavar="FOLDER")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def new(template: str, folder: str, debug: bool) -> None:
    """Start a project of your own in FOLDER from a template."""
    with errors(as_json=False, debug=debug):
        for path in create_project(template, folder):
            click.echo(f"wrote {path}")
        click.echo(f"next: {_command()} run {os.path.join(folder, 'config.yaml')}")


@main.command()
@click.argument("model", metavar="MODEL")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a prediction.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def predict(model: str, inputs: tuple[str, ...], as_json: bool, debug: bool) -> None:
    """Ask a pushed MODEL about picture files or the rows of CSV files."""
    with errors(as_json, debug), quiet(os.devnull) as console:
        from infeed.pipelines.predict import predict as predictions

        for prediction in predictions(model, inputs):
            if as_json:
                console.out(json.dumps(dataclasses.asdict(prediction)), highlight=False)
                continue
            sure = "" if prediction.probability is None else f"  {prediction.probability:.1%}"
            console.out(f"{prediction.input}  {prediction.value}{sure}", highlight=False)


def _run(
    config: PipelineConfig, console: Console, log: Path, from_node: str | None, as_json: bool
) -> tuple[RunReport, Outcome | None]:
    """TFX is imported here and not before: it takes many seconds, and a mistake is told without it."""
    view = contextlib.nullcontext(lambda nodes: None) if as_json else show_nodes(console, _short(log))
    with view as on_change:
        with _no_garbage_collection():
            from infeed.pipelines.local import run_local
            from infeed.pipelines.outcome import read_outcome
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
        lines.append(("pushed to", _short(outcome.pushed), ""))
    waited = f"{outcome.wait_fraction:.1%} of training time after the first epoch: {outcome.verdict}"
    lines += [("waited for input", waited, ""), ("report", _short(outcome.report), "")]
    if outcome.pushed:
        lines.append(("predict with", f"{_command()} predict {_short(outcome.pushed)} {_example(config)}", "bold"))
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
        f"log: {_short(log)}\n",
        f"once that is mended, run from there on: {' '.join([_command(), *words])} --from {failed.name}",
    )


def _example(config: PipelineConfig) -> str:
    """Something to predict that is there: a picture of the data, or the table."""
    if config.source == "csv":
        return _short(config.data)
    from infeed.components.example_gen.sources.images import find_images

    return _short(find_images(config.data).images[0].path)


def _command() -> str:
    """How this program was called, so that the line can be pasted."""
    return "infeed" if shutil.which("infeed") else os.path.relpath(sys.argv[0])


def _short(path: str | Path) -> str:
    """Relative where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


main.add_command(build)
main.add_command(compile_)
main.add_command(doctor)
main.add_command(ingest)
main.add_command(inspect)
main.add_command(submit)
main.add_command(rehearse_)
