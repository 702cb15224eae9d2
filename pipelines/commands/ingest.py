"""`infeed ingest`: a dataset without a pipeline. Neither TFX nor, without --runner, Beam is imported."""

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

from infeed.components.beam_runner import BEAM_RUNNERS, pipeline_on
from infeed.components.dataset.manifest import Manifest, Shard
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import Buckets, ByColumns, ByLabel, ByName, ByTime, SplitBy
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest as steps
from infeed.components.example_gen.formats import FORMATS, guess_format, open_source
from infeed.components.example_gen.ingest import ProgressListener
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.local import (
    DEFAULT_SPLITS,
    check_output,
    processes,
    processes_that_pay,
    unfinished,
)
from infeed.components.example_gen.planning import SpilledBlock
from infeed.components.units import counted, size
from infeed.pipelines.commands.options import source_options
from infeed.pipelines.console import terminal
from infeed.pipelines.console.exit_codes import Command, debugging
from infeed.pipelines.console.terminal import Terminal, echo

# What `infeed ingest` shows: a bar while it works, and a few lines at the end.


@contextlib.contextmanager
def show_progress(opened: OpenedSource, block_bytes: int, quiet: bool) -> Iterator[ProgressListener]:
    """Yields what `ingest` tells; nothing is drawn where nobody looks."""
    console = Terminal(stderr=True)
    if quiet or not console.is_terminal:
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
    with Progress(*columns, console=console) as progress:
        yield Bars(progress, opened, block_bytes)


@contextlib.contextmanager
def show_opening(quiet: bool) -> Iterator[None]:
    """For the time before anything can be counted: some formats look through the whole input for its types."""
    console = Terminal(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status("looking through the input"):
        yield


class Bars(ProgressListener):
    """One bar for reading, by the blocks that the input should have, and one for writing, by shards done."""

    def __init__(self, progress: Progress, opened: OpenedSource, block_bytes: int) -> None:
        self._progress, self._tasks = progress, max(len(opened.tasks), 1)
        self._blocks_a_task = max(1.0, opened.provenance.bytes / self._tasks / block_bytes)
        self._reading = progress.add_task("reading", total=self._tasks, count="", rate="")
        self._writing = progress.add_task("writing", total=None, count="", rate="", start=False, visible=False)
        self._blocks = self._rows = self._bytes = self._written = 0

    def read(self, block: SpilledBlock) -> None:
        """Rows and megabytes of records so far."""
        self._blocks += 1
        self._rows += block.rows
        self._bytes += sum(spill.bytes for spill in block.spills)
        done, rate = min(self._blocks / self._blocks_a_task, self._tasks), self._rate(self._bytes, self._reading)
        self._progress.update(self._reading, completed=done, count=f"{self._rows:,} rows", rate=rate)

    def write(self, shard: Shard, shards: int) -> None:
        """Shards so far, and the megabytes of their files."""
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
    """What was written, in a line a split."""
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
        lines.append(
            f"  warning: {' and '.join(empty)} holds no record: so few rows, divided by their hash, may miss it"
        )
    lines += [f"  warning: {warning}" for warning in manifest.warnings]
    return "\n".join(lines)


_NEEDS = {"cuts": "split_time", "split_salt": "by_columns", "beam_options": "runner"}


@click.command(name="ingest", cls=Command)
@click.argument("source")
@click.argument("output")
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(FORMATS)),
    help="Of the source; by default the names of its files decide.",
)
@source_options
@click.option("--split", "splits", multiple=True, metavar="NAME[=SHARE]", help="[default: train=2, eval=1]")
@click.option("--split-by", "by_columns", multiple=True, metavar="COLUMN", help="Keep rows that agree in it together.")
@click.option("--split-salt", default="", metavar="TEXT", help="Another division by the same columns.")
@click.option("--split-label", metavar="COLUMN", help="Give every split its share of each label.")
@click.option("--split-time", metavar="COLUMN", help="Splits in order of time; needs --cut.")
@click.option("--cut", "cuts", multiple=True, metavar="TIME", help="Where the next split begins.")
@click.option("--split-name", metavar="COLUMN", help="The column holds the name of the split.")
@click.option("--columns", metavar="A,B,...", help="Write these columns only.")
@click.option("--filter", "row_filter", metavar="EXPRESSION", help='Keep rows for which it is true: "fare > 0".')
@click.option("--balance", metavar="COLUMN", help="Every label of it as often as any other.")
@click.option("--balance-by", type=click.Choice(["over", "under"]), default="over", show_default=True)
@click.option("--balance-split", multiple=True, default=["train"], show_default=True, metavar="NAME")
@click.option("--shards", type=click.IntRange(min=1), help="In each split; by size by default.")
@click.option("--target-shard-mb", type=click.IntRange(min=1), help="Megabytes of records in a shard, about.")
@click.option("--compression", type=click.Choice(["gzip", "none"]), default="gzip", show_default=True)
@click.option("--level", type=click.IntRange(0, 9), default=1, show_default=True, help="Of gzip.")
@click.option("--shuffle-seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--no-shuffle", is_flag=True, help="Keep the order of the input.")
@click.option("--on-bad-row", type=click.Choice(["fail", "reject"]), default="fail", show_default=True)
@click.option("--bad-row-limit", type=click.IntRange(min=0), default=1_000, show_default=True)
@click.option(
    "--max-row-mb",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Refuse a row that decodes to more megabytes.",
)
@click.option("--compat", type=click.Choice(["none", "tfx"]), default="none", show_default=True)
@click.option("--no-statistics", is_flag=True, help="Do not count what is in the columns on the way.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes; as many as pay by default.")
@click.option("--runner", metavar="NAME", help=f"Run on Beam: {', '.join(BEAM_RUNNERS)}, or a class of yours.")
@click.option("--beam-option", "beam_options", multiple=True, metavar="--NAME=VALUE", help="For the Beam runner.")
@click.option("--overwrite", is_flag=True, help="Replace the dataset at OUTPUT.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(source: str, output: str, overwrite: bool, as_json: bool, **given: Any) -> None:
    """Write SOURCE (a folder, a file or a quoted pattern) as sharded TFRecords to OUTPUT."""
    began = time.perf_counter()
    _check_needs(given)
    check_output(output, overwrite)
    manifest = _ingest(source, output, overwrite, as_json, given)
    seconds = time.perf_counter() - began
    if as_json:
        found = {"output": output, "seconds": seconds, "manifest": dataclasses.asdict(manifest)}
        echo(json.dumps(found))
    else:
        echo(summary(manifest, output, seconds))


def _ingest(source: str, output: str, overwrite: bool, quiet: bool, given: Mapping[str, Any]) -> Manifest:
    options, buckets = _options(given), _buckets(given["splits"])
    with show_opening(quiet):
        kind = given["kind"] or guess_format(source)
        opened = open_source(source, kind, options, given["source_options"], "--set")
    with unfinished(output, overwrite) as root:
        job = steps.Job.of(opened, root=root, splits=buckets.names, buckets=buckets, options=options)
        if given["runner"]:
            with _beams_words_kept():
                return _run_on_beam(opened, job, given["runner"], given["beam_options"])
        return _run_here(opened, job, given["workers"], quiet)


def _run_here(opened: OpenedSource, job: steps.Job, workers: int | None, quiet: bool) -> Manifest:
    count = workers or processes_that_pay(len(opened.tasks), opened.provenance.bytes)
    with show_progress(opened, job.options.block_bytes, quiet) as listener, processes(count) as map_fn:
        return steps.ingest(opened.tasks, job, map_fn=map_fn, listener=listener)


@contextlib.contextmanager
def _beams_words_kept() -> Iterator[None]:
    """What Beam and its workers write, tracebacks above all, is shown where nothing else tells of a failure."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as log:
        try:
            with terminal.quiet(log.name):
                yield
        except Exception as error:
            if debugging() or not isinstance(error, InfeedError):
                echo(log.read(), err=True)
            raise


def _run_on_beam(opened: OpenedSource, job: steps.Job, runner: str, beam_options: tuple[str, ...]) -> Manifest:
    from infeed.components.example_gen.transforms import run_pipeline

    run_pipeline(opened.tasks, job, lambda: pipeline_on(runner, beam_options))
    return Manifest.read(job.root)


def _options(given: Mapping[str, Any]) -> IngestOptions:
    balance = Balance(given["balance"], given["balance_split"], given["balance_by"]) if given["balance"] else None
    return IngestOptions(
        shards=_shards(given["shards"], given["target_shard_mb"]),
        shuffle_seed=None if given["no_shuffle"] else given["shuffle_seed"],
        split_by=_split_by(given),
        columns=tuple(given["columns"].split(",")) if given["columns"] else None,
        filter=given["row_filter"],
        balance=balance,
        statistics=not given["no_statistics"],
        **{
            name: given[name]
            for name in ("compression", "level", "on_bad_row", "bad_row_limit", "max_row_mb", "compat")
        },
    )


def _shards(count: int | None, target_mb: int | None) -> ShardOptions:
    """A target that is asked for is meant: no more shards than it takes, so that many readers have one each."""
    if target_mb is None:
        return ShardOptions(count=count)
    target = target_mb * 1_000_000
    return ShardOptions(
        count=count, target_bytes=target, min_bytes=min(target, ShardOptions().min_bytes), readers_per_host=1
    )


def _split_by(given: Mapping[str, Any]) -> SplitBy | None:
    rules: list[SplitBy] = []
    if given["by_columns"]:
        rules.append(ByColumns(given["by_columns"], given["split_salt"]))
    if given["split_label"]:
        rules.append(ByLabel(given["split_label"]))
    if given["split_time"]:
        rules.append(ByTime(given["split_time"], given["cuts"]))
    if given["split_name"]:
        rules.append(ByName(given["split_name"]))
    if len(rules) > 1:
        raise InfeedError(
            f"split by {' and by '.join(rule.how for rule in rules)}",
            do="give one of --split-by, --split-label, --split-time and --split-name",
        )
    return rules[0] if rules else None


def _buckets(splits: tuple[str, ...]) -> Buckets:
    shares = []
    for text in splits or (f"{name}={share}" for name, share in DEFAULT_SPLITS.items()):
        name, _, share = text.partition("=")
        if share and not share.isdecimal():
            raise InfeedError(f"share {share!r}", where=f"--split {text}", do="give a whole number, such as train=2")
        shares.append((name, int(share or 1)))
    return Buckets(tuple(shares))


def _check_needs(given: Mapping[str, Any]) -> None:
    """An option that would do nothing without another one is a mistake."""
    flags = {option.name: option.opts[0] for option in command.params}
    for name, needed in _NEEDS.items():
        if given[name] and not given[needed]:
            raise InfeedError(f"{flags[name]} without {flags[needed]}", do=f"give {flags[needed]} as well")
