"""Output of `infeed ingest`: progress bars while it runs, and a summary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from infeed.components.base import progress
from infeed.components.base.units import counted, size
from infeed.components.dataset.manifest import Manifest, Shard
from infeed.components.example_gen.ingest import ProgressListener
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.planning import SpilledTask
from infeed.pipelines.console.terminal import Terminal

_MANY_ROWS = 1000  # by chance, a hash leaves no split of 1 % or more empty


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
