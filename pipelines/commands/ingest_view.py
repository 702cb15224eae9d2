"""What `infeed ingest` shows: a bar while it works, and a few lines at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from infeed.components.dataset.manifest import Manifest, Shard
from infeed.components.example_gen.ingest import Input, Watcher
from infeed.components.example_gen.planning import Block


@contextlib.contextmanager
def show_progress(opened: Input, block_bytes: int, quiet: bool) -> Iterator[Watcher]:
    """Yields what `ingest` tells; nothing is drawn where nobody looks."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield Watcher()
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
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status("looking through the input"):
        yield


class Bars(Watcher):
    """One bar for reading, by the blocks that the input should have, and one for writing, by shards done."""

    def __init__(self, progress: Progress, opened: Input, block_bytes: int) -> None:
        self._progress, self._tasks = progress, max(len(opened.tasks), 1)
        self._blocks_a_task = max(1.0, opened.source.bytes / self._tasks / block_bytes)
        self._reading = progress.add_task("reading", total=self._tasks, count="", rate="")
        self._writing = progress.add_task("writing", total=None, count="", rate="", start=False, visible=False)
        self._blocks = self._rows = self._bytes = self._written = 0

    def read(self, block: Block) -> None:
        """Rows and megabytes of records so far."""
        self._blocks += 1
        self._rows += block.rows
        self._bytes += sum(spill.bytes for spill in block.spills)
        elapsed = self._progress.tasks[self._reading].elapsed or 0
        rate = f"{self._bytes / 1e6 / elapsed:.0f} MB/s" if elapsed else ""
        done = min(self._blocks / self._blocks_a_task, self._tasks)
        self._progress.update(self._reading, completed=done, count=f"{self._rows:,} rows", rate=rate)

    def write(self, shard: Shard, shards: int) -> None:
        """Shards so far, and the megabytes of their files."""
        if not self._written:
            self._progress.update(self._reading, completed=self._tasks)
            self._progress.start_task(self._writing)
            self._progress.update(self._writing, visible=True)
        self._written += shard.bytes
        elapsed = self._progress.tasks[self._writing].elapsed or 0
        rate = f"{self._written / 1e6 / elapsed:.0f} MB/s" if elapsed else ""
        self._progress.update(self._writing, total=shards, advance=1, count=f"{shards} shards", rate=rate)


def summary(manifest: Manifest, output: str, seconds: float) -> str:
    """What was written, in a line a split."""
    lines = [f"wrote {output}: {manifest.rows_read:,} rows read in {seconds:.1f} s"]
    for name, split in manifest.splits.items():
        shards = f"{len(split.shards)} shard{'s' if len(split.shards) != 1 else ''}"
        lines.append(
            f"  {name:<10} {split.records:>12,} records  {decimal(split.bytes):>9} in {shards}: {split.reason}"
        )
    if manifest.filtered:
        lines.append(f"  {_rows(manifest.filtered)} filtered out")
    if manifest.rejected.rows:
        lines.append(f"  {_rows(manifest.rejected.rows)} rejected, listed in {output}/{manifest.rejected.file}")
    if manifest.balanced.repeated or manifest.balanced.dropped:
        lines.append(f"  balanced: {manifest.balanced.repeated:,} repeated, {manifest.balanced.dropped:,} dropped")
    return "\n".join(lines)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
