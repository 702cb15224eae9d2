"""`infeed ingest`: write a dataset without a pipeline. Does not import TFX, and Beam only with --runner."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from infeed.components.base import progress, schema, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted, size
from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest, Shard
from infeed.components.dataset.options import IngestOptions, Spans
from infeed.components.dataset.splits import DEFAULT_SHARES, Buckets
from infeed.components.engine.beam_runner import BEAM_RUNNERS, Named, pipeline_on
from infeed.components.engine.choice import choose
from infeed.components.engine.engine import Engine
from infeed.components.engine.on_beam import OnBeam
from infeed.components.example_gen import ingest as steps
from infeed.components.example_gen.formats import FORMATS, guess_format, open_source, options_of
from infeed.components.example_gen.ingest import ProgressListener
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.local import check_output, clean, unfinished, work_of
from infeed.components.example_gen.planning import SpilledTask, settled
from infeed.components.example_gen.windows import SpanWindow, settings_of
from infeed.pipelines.commands.asking import config_of, is_project
from infeed.pipelines.commands.options import ingest_options, source_options
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console import terminal
from infeed.pipelines.console.exit_codes import Command, debugging, errors
from infeed.pipelines.console.paths import InputPath, OutputFolder
from infeed.pipelines.console.terminal import Terminal, echo
from infeed.pipelines.project.ingest_settings import read_ingest
from infeed.pipelines.project.sources import of_span, open_data

_MANY_ROWS = 1000  # by chance, a hash leaves no split of 1 % or more empty
_Ingest = tuple[OpenedSource, tuple[str, ...], Buckets | None, IngestOptions]  # (source, splits, options)


def _clean(context: click.Context, _: click.Parameter, output: str | None) -> None:
    if output is None:
        return
    with errors(False, False):  # an eager option: `Command` has not yet checked the path or set up errors
        OutputFolder().check(output, f"--clean {output}" if output else "--clean")
        removed = clean(output)
    for path in removed:
        echo(f"removed {path}")
    echo(f"no unfinished files of {output} are left")
    context.exit()


@click.command(
    name="ingest",
    cls=Command,
    examples=(
        "infeed ingest rides.csv data --split train=8 --split eval=2",
        "infeed ingest photos data --format images",
        "infeed ingest --reader my_package.data:trips data",
        "infeed ingest taxi/config.yaml data",
    ),
)
@click.argument("source", type=InputPath())
@click.argument("output", type=OutputFolder(), required=False, metavar="OUTPUT")
@click.option(
    "--reader",
    help="Function that returns the rows, instead of SOURCE: package.module:function or file.py:function.",
    metavar="NAME",
)
@click.option("--format", "kind", type=click.Choice(list(FORMATS)), help="Format of SOURCE.  [default: by file names]")
@source_options
@ingest_options
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of worker processes.  [default: by input size]", metavar="N"
)
@click.option("--runner", metavar="NAME", help=f"Run on Beam: {', '.join(BEAM_RUNNERS)}, or your own class.")
@click.option("--beam-option", "beam_options", multiple=True, metavar="--NAME=VALUE", help="Option of the Beam runner.")
@click.option(
    "--data", type=InputPath(), help="Data of the project, instead of the data in its config.", metavar="PATH"
)
@click.option("--overwrite", is_flag=True, help="Replace the dataset at OUTPUT.")
@click.option(
    "--clean",
    type=OutputFolder(),
    callback=_clean,
    is_eager=True,
    expose_value=False,
    metavar="OUTPUT",
    help="Remove the unfinished files of a killed ingest into OUTPUT, and exit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(
    source: str,
    output: str | None,
    reader: str | None,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Write SOURCE as sharded TFRecords to OUTPUT.

    SOURCE is a file, a folder, or a quoted pattern. It may also be the config.yaml of a project, which sets data,
    format, splits, and options as in `infeed run`.
    """
    began = time.perf_counter()
    if reader:
        source, output = _of_reader(reader, source, output, given)
    if output is None:
        raise click.UsageError("Missing argument 'OUTPUT'.")
    if given["beam_options"] and not given["runner"]:
        raise InfeedError("--beam-option requires --runner", do="add --runner")
    check_output(output, overwrite)
    if is_project(source) and (spans := (config := _config(source, given)).ingest.spans):
        manifest = _ingest_window(config, spans, output, overwrite, as_json, given)
    else:
        with show_opening(as_json):
            opening = _opened(source, given)
        with unfinished(output, overwrite) as root:
            manifest = _write_into(root, opening, as_json, given)
    seconds = time.perf_counter() - began
    if as_json:
        echo(json.dumps({"output": output, "seconds": seconds, "manifest": dataclasses.asdict(manifest)}))
    else:
        echo(summary(manifest, output, seconds))


def _of_reader(reader: str, output: str, more: str | None, given: dict[str, Any]) -> tuple[str, str]:
    """Return the source and the output of a command with a function instead of SOURCE."""
    if more is not None or given["kind"]:
        what = "it is set together with SOURCE or --format"
        raise InfeedError(what, where=f"--reader {reader}", do="give only OUTPUT")
    OutputFolder().check(output, f"OUTPUT {output}")
    given["kind"] = "reader"
    return reader, output


def _ingest_window(
    config: PipelineConfig, spans: Spans, output: str, overwrite: bool, quiet: bool, given: Mapping[str, Any]
) -> Manifest:
    """Ingest each new span into the cache of the spans, and write the dataset of all spans to OUTPUT."""
    source = schema.to_plain(options_of(config.source, config.source_options) or {})
    own = config.user_functions.get("filter")
    code = user_code.digest(own, "filter") if own else None
    settings = settings_of(config.source, source, config.ingest, _buckets(config), code)
    with unfinished(output, overwrite) as root:
        SpanWindow(spans, config.data, settings).write(
            root, lambda pattern, folder: _write_into(folder, _of_config(of_span(config, pattern)), quiet, given)
        )
        return Manifest.read(root)


def _write_into(root: str, found: _Ingest, quiet: bool, given: Mapping[str, Any]) -> Manifest:
    opened, splits, buckets, options = found

    def attempt(found: OpenedSource) -> Manifest:
        job = steps.Job.of(found, root=root, splits=splits, buckets=buckets, options=options)
        with _engine(found, root, quiet, given) as (engine, listener):
            return steps.ingest(found.tasks, job, map_fn=engine.map, listener=listener)

    return settled(opened, attempt)


def _opened(source: str, given: Mapping[str, Any]) -> _Ingest:
    if is_project(source):
        return _of_config(_config(source, given))
    if given["data"]:
        raise InfeedError(f"{source} is no config.yaml", where="--data", do="add the data as SOURCE")
    settings = read_ingest(given["ingest"])
    options, buckets = settings.options, Buckets(tuple((settings.shares or DEFAULT_SHARES).items()))
    kind = given["kind"] or guess_format(source)
    if given["runner"] and not FORMATS[kind].is_query:
        source = files.absolute(source)  # Beam workers may have another working directory
    opened = open_source(source, kind, options, given["source_options"], "--set", sampled=True)
    return opened, buckets.names, buckets, options


def _config(project: str, given: Mapping[str, Any]) -> PipelineConfig:
    if given["kind"]:
        raise InfeedError("the project sets the format", where="--format", do="leave it out, or add the data")
    return config_of(project, {name: given[name] for name in ("data", "source_options", "ingest")})


def _buckets(config: PipelineConfig) -> Buckets | None:
    return Buckets(tuple(config.splits.items())) if config.splits else None


def _of_config(config: PipelineConfig) -> _Ingest:
    buckets = _buckets(config)
    splits = (*config.splits, *(split for split in config.patterns if split not in config.splits))
    return open_data(config, sampled=True), splits, buckets, config.ingest


@contextlib.contextmanager
def _engine(
    found: OpenedSource, root: str, quiet: bool, given: Mapping[str, Any]
) -> Iterator[tuple[Engine, ProgressListener]]:
    """Yield the engine, and who listens to its progress. Beam's output would disturb the bars of a terminal."""
    runner, own = given["runner"], given["beam_options"]
    if not runner:
        with show_progress(found, quiet) as listener, choose(work_of(found), processes=given["workers"]) as engine:
            yield engine, listener
        return
    named = Named.of([f"--runner={BEAM_RUNNERS.get(runner, runner)}", *own])
    shared = files.join(root, names.UNFINISHED)  # removed with all temporary files
    with _beam_log(), OnBeam(lambda: pipeline_on(runner, own), shared, named) as engine:
        yield engine, ProgressListener()


@contextlib.contextmanager
def _beam_log() -> Iterator[None]:
    """Hide the output of Beam and its workers. Print it if they fail with an error that is not an InfeedError."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as log:
        try:
            with terminal.quiet(log.name):
                yield
        except Exception as error:  # a runner may raise anything, and the error is raised again below
            if debugging() or not isinstance(error, InfeedError):
                echo(log.read(), err=True)
            raise


@contextlib.contextmanager
def show_progress(opened: OpenedSource, quiet: bool) -> Iterator[ProgressListener]:
    """Yield the progress listener for `ingest`. Bars appear only on a terminal."""
    console = Terminal(stderr=True)
    if quiet or not console.is_interactive:
        yield ProgressListener()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[count]:>15}"),
        TextColumn("{task.fields[rate]:>9}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bars, progress.listening((shown := Bars(bars, opened)).hear):
        yield shown


@contextlib.contextmanager
def show_opening(quiet: bool) -> Iterator[None]:
    """Show a spinner while the input is opened, because some formats read rows to infer types."""
    console = Terminal(stderr=True)
    if quiet or not console.is_interactive:
        yield
        return
    with console.status("inspecting the input"):
        yield


class Bars(ProgressListener):
    """Two progress bars: tasks read and shards written."""

    def __init__(self, progress: Progress, opened: OpenedSource) -> None:
        self._progress, self._tasks = progress, max(len(opened.tasks), 1)
        self._reading = progress.add_task("reading", total=self._tasks, count="", rate="")
        self._writing = progress.add_task("writing", total=None, count="", rate="", start=False, visible=False)
        self._rows = self._bytes = self._written = 0

    def hear(self, words: str, is_result: bool) -> None:
        """Show the row count of a running task, for example "12,000 rows read on 2 processes"."""
        count, read, _ = words.partition(" rows read")
        if read:
            self._progress.update(self._reading, count=f"{count} rows")

    def read(self, task: SpilledTask) -> None:
        """Add the rows and bytes of a finished task."""
        self._rows += task.rows
        self._bytes += int(task.spills.bytes.sum())
        rate = self._rate(self._bytes, self._reading)
        self._progress.update(self._reading, advance=1, count=f"{self._rows:,} rows", rate=rate)

    def write(self, shard: Shard, shards: int) -> None:
        """Add the bytes of a written shard."""
        if not self._written:
            self._progress.update(self._reading, completed=self._tasks)
            self._progress.start_task(self._writing)
            self._progress.update(self._writing, visible=True)
        self._written += shard.bytes
        rate = self._rate(self._written, self._writing)
        self._progress.update(self._writing, total=shards, advance=1, count=f"{shards} shards", rate=rate)

    def _rate(self, done: int, task: TaskID) -> str:
        elapsed = self._progress.tasks[task].elapsed
        return f"{size(done / elapsed)}/s" if elapsed else ""


def summary(manifest: Manifest, output: str, seconds: float) -> str:
    """Summarize the dataset, one line per split."""
    lines = [f"wrote {output}: {counted(manifest.rows_read, 'row')} read in {seconds:.1f} s"]
    for name, split in manifest.splits.items():
        shards = counted(len(split.shards), "shard")
        lines.append(f"  {name:<10} {split.records:>12,} records  {size(split.bytes):>9} in {shards}: {split.reason}")
    if manifest.filtered:
        lines.append(f"  {counted(manifest.filtered, 'row')} filtered out")
    if manifest.rejected.rows:
        lines.append(
            f"  {counted(manifest.rejected.rows, 'row')} rejected, listed in {output}/{manifest.rejected.file}"
        )
    if manifest.balanced.repeated or manifest.balanced.dropped:
        lines.append(f"  balanced: {manifest.balanced.repeated:,} repeated, {manifest.balanced.dropped:,} dropped")
    empty = [name for name, split in manifest.splits.items() if not split.records]
    if empty and manifest.rows_read:
        lines.append(f"  warning: {' and '.join(empty)} is empty: {_why_empty(manifest)}")
    lines += [f"  warning: {warning}" for warning in manifest.warnings]
    return "\n".join(lines)


def _why_empty(manifest: Manifest) -> str:
    """Return why a split may be empty, by its split rule."""
    rule = manifest.options.get("split_by") or {}
    match rule.get("how"):
        case "time":
            return f"no {rule['column']} is in its period, divided at {', '.join(rule['cuts'])}"
        case "name":
            return f"no {rule['column']} has its name"
        case "label":
            return f"every {rule['column']} has too few rows for it"
        case "columns":
            return f"no hash of {', '.join(rule['columns'])} leads to it. With few different values, this may happen"
    if manifest.rows_read <= _MANY_ROWS:
        return "with so few rows, a split by hash may be empty"
    return "all rows hash into other splits, as the rows of one split of an earlier ingest do. Use another --split-salt"
