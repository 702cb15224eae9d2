"""`infeed run`: run a pipeline on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import short_path
from infeed.pipelines.commands.asking import decided
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.commands.run_summary import summary
from infeed.pipelines.config import PipelineConfig, resumable
from infeed.pipelines.console.exit_codes import EXIT_FAILED, EXIT_NOT_BLESSED, Command, importing
from infeed.pipelines.console.nodes import NodeReport, NodeState, OnChange, RunReport, show_nodes
from infeed.pipelines.console.terminal import command_line, in_lines, quiet, show_facts, verbose_option
from infeed.pipelines.local.outcome import only_process
from infeed.pipelines.project.config_file import read_project

if TYPE_CHECKING:
    from infeed.pipelines.local.outcome import RunOutcome

_log = logging.getLogger(__name__)


@click.command(
    name="run",
    cls=Command,
    examples=(
        "infeed run image",
        "infeed run tabular --data rides.csv --label tip",
        "infeed run taxi/config.yaml --from Trainer",
    ),
)
@project_options
@click.option("--from", "from_node", help="Run only this node and the nodes that depend on it.", metavar="NODE")
@verbose_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(project: str, from_node: str | None, verbose: bool, as_json: bool, **overrides: Any) -> None:
    """Run a pipeline on this machine, from data to a pushed model.

    The exit code is 0 if the model is blessed and pushed, 3 if the model is not good enough to be blessed, 1 if a node
    failed, and 2 if an option or the data is invalid.
    """
    config = decided(read_project(project), overrides, may_ask=not as_json)
    if "://" in config.root:
        what = f"a run on this machine needs a local folder for its metadata, not {config.root}"
        do = "use a local folder. deploy.root sets the root of a compiled pipeline"
        raise InfeedError(what, where="root", do=do)
    log = Path(config.logs) / "run.log"
    # Lock before the log is opened, in which another run of this root may be writing.
    with only_process(config.root), quiet(log, verbose) as console:
        for about, words in config.notes:
            _log.info("%s: %s", about, words)
        if not as_json:
            show_facts(console, config.notes)
        view = show_nodes(console, short_path(log), silent=as_json, plain=verbose)
        with _report_interrupt(config, console, as_json) as watch, view as on_change:
            report, outcome = _run(config, from_node, watch, on_change)
        _print_result(report, outcome, config, log, console, as_json)
    sys.exit(_exit_code(outcome))


def _exit_code(outcome: RunOutcome | None) -> int:
    """Return the exit code of docs/command-line.md. A failed run has no outcome."""
    if outcome is None:
        return EXIT_FAILED
    return 0 if outcome.blessed else EXIT_NOT_BLESSED


def _run(
    config: PipelineConfig, from_node: str | None, watch: OnChange, on_change: OnChange
) -> tuple[RunReport, RunOutcome | None]:
    """Run the pipeline. TFX is imported late, because the import takes many seconds and input errors do not need it."""
    with importing(), _less_garbage_collection():
        from infeed.pipelines.local.outcome import read_outcome
        from infeed.pipelines.local.runner import run_local
        from infeed.pipelines.local.trial import try_out
        from infeed.pipelines.pipeline import create_pipeline

    try_out(config)
    pipeline = create_pipeline(resumable(config))

    def notify(nodes: Sequence[NodeReport]) -> None:
        watch(nodes)
        on_change(nodes)

    report = run_local(pipeline, on_change=notify, from_node=from_node)
    return report, read_outcome(config) if report.succeeded else None


@contextlib.contextmanager
def _report_interrupt(config: PipelineConfig, console: Console, as_json: bool) -> Iterator[OnChange]:
    """Yield a listener for the nodes. On Ctrl-C, print the finished nodes and the command that resumes the run."""
    nodes: Sequence[NodeReport] = ()

    def watch(changed: Sequence[NodeReport]) -> None:
        nonlocal nodes
        nodes = changed

    try:
        yield watch
    except KeyboardInterrupt:
        if not as_json:
            console.print(_kept(nodes, config), soft_wrap=True)
        raise


def _kept(nodes: Sequence[NodeReport], config: PipelineConfig) -> Text:
    done = [node.name for node in nodes if node.state in (NodeState.DONE, NodeState.CACHED)]
    running = next((node for node in nodes if node.state is NodeState.RUNNING), None)
    lines = [
        ("kept", f"{len(done)} of {len(nodes)} nodes: the next run takes them from the cache" if done else "nothing")
    ]
    if running and running.name == "Trainer" and (step := _checkpoint(config)):
        lines.append(("", f"the training until step {step:,}: the next run resumes there"))
    return Text("\n").join([Text(""), in_lines([*lines, ("resume with", command_line(*sys.argv[1:]), "bold")])])


def _checkpoint(config: PipelineConfig) -> int:
    """Return the step of the newest checkpoint, or 0 if there is no checkpoint."""
    from infeed.components.trainer.checkpoint import saved_step

    folders = Path(resumable(config).train.checkpoint_dir or "").glob("*")
    newest = max(folders, key=lambda folder: folder.stat().st_mtime, default=None)
    return saved_step(str(newest)) if newest else 0


@contextlib.contextmanager
def _less_garbage_collection() -> Iterator[None]:
    """Pause garbage collection during imports, whose objects stay alive, and reduce it afterwards.

    Garbage collection took 1.5 of 14 CPU seconds during imports, and 1.2 of 18 afterwards.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(100_000)
        gc.enable()


def _print_result(
    report: RunReport, outcome: RunOutcome | None, config: PipelineConfig, log: Path, console: Console, as_json: bool
) -> None:
    if as_json:
        result = {
            "succeeded": report.succeeded,
            "seconds": report.seconds,
            "nodes": [dataclasses.asdict(node) for node in report.nodes],
            "notes": config.notes,
            "outcome": dataclasses.asdict(outcome) if outcome else None,
            "log": str(log),
            "exit_code": _exit_code(outcome),
        }
        console.out(json.dumps(result, indent=1), highlight=False)
    elif outcome:
        console.print(summary(outcome, config), soft_wrap=True)
    else:
        console.print(_failure(report, log), soft_wrap=True)


def _failure(report: RunReport, log: Path) -> Text:
    failed = report.failed
    assert failed is not None, "this requires a failed run"
    words = [word for word in sys.argv[1:] if not word.startswith("--from=")]
    if "--from" in words:
        at = words.index("--from")
        del words[at : at + 2]
    return Text.assemble(
        "\n",
        (f"{failed.name} failed", "bold red"),
        f"\n{failed.error}\n\n",
        f"log: {short_path(log)}\n",
        f"after fixing this, resume with: {command_line(*words, '--from', failed.name)}",
    )
