"""Memory of ingestion, and balance of the shards, on a large generated table.

    python benchmarks/ingest_memory.py --megabytes 1000 --run processes

The benchmark reports CPU and wall seconds of `infeed ingest`, the peak of resident memory of all its processes and of
the largest one, sampled every 50 ms, and the size of the largest shard over that of the smallest. With `--read-back`,
TFX's own reader reads the dataset, and must return every row once.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from clock import Stopwatch, below
from harness import Result, Side, as_json, report
from pyarrow import csv

from infeed.components.dataset import names
from infeed.components.dataset.manifest import Manifest

RUNS = {"one process": ["--workers", "1"], "processes": ["--workers", "2"], "beam": ["--runner", "direct"]}
INFEED = "from infeed.pipelines.cli import main; main()"
_ROWS = 50_000  # rows that are written at once
_COLUMNS = 20
_ROW = "row"


@dataclass(frozen=True)
class Peak:
    """Peak of resident bytes, of one process and of all processes together."""

    heaviest: int
    together: int


@click.command()
@click.option("--megabytes", default=100, show_default=True, help="Size of the CSV in MB.")
@click.option("--run", type=click.Choice(list(RUNS)), default="one process", show_default=True)
@click.option("--read-back", is_flag=True, help="Also read the dataset with TFX's reader.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder that keeps the table for later runs.")
@as_json
def main(megabytes: int, run: str, read_back: bool, keep: Path | None, as_json: bool) -> None:
    """Measure `infeed ingest`."""
    with tempfile.TemporaryDirectory() as folder:
        table = keep or Path(folder, "table.csv")
        if not table.exists():
            write_table(table, megabytes * 1_000_000)
        watch, ended = Stopwatch(), cpu_of_children()
        peak = peak_of([sys.executable, "-c", INFEED, "ingest", str(table), f"{folder}/out", *RUNS[run]])
        wall, cpu = watch.wall, cpu_of_children() - ended
        manifest = Manifest.read(f"{folder}/out")
        sizes = {name: [shard.bytes for shard in split.shards] for name, split in manifest.splits.items()}
        also: dict[str, float | str] = {"peak bytes of the heaviest process": peak.heaviest}
        also |= {f"largest shard of {name} over smallest": max(some) / min(some) for name, some in sizes.items()}
        if read_back:
            times_read = count_reads(f"{folder}/out", manifest)
            once = int(np.count_nonzero(times_read == 1))
            also |= {"rows read back once": once, "rows read back never, or more than once": len(times_read) - once}
    case = f"{manifest.source.bytes / 1e6:,.0f} MB of CSV, {manifest.rows_read:,} rows"
    ours = Side(f"infeed, {run}", cpu, wall, peak.together, also)
    report([Result("ingest memory", case, ours, None, turns=1)], as_json)


def write_table(path: Path, size: int) -> None:
    """Write rows until the file has `size` bytes: the row's number, then integers, floats and text in turn."""
    random = np.random.default_rng(0)
    rows = 0
    makers = (
        lambda: random.integers(0, 10**9, _ROWS),
        lambda: random.normal(0, 100, _ROWS).round(4),
        lambda: np.char.add("label ", random.integers(0, 1_000, _ROWS).astype(str)),
    )
    with path.open("wb") as file:
        while file.tell() < size:
            columns = {f"column_{number}": makers[number % 3]() for number in range(_COLUMNS - 1)}
            table = pa.table({_ROW: np.arange(rows, rows + _ROWS), **columns})
            csv.write_csv(table, file, csv.WriteOptions(include_header=rows == 0))
            rows += _ROWS


def count_reads(root: str, manifest: Manifest) -> npt.NDArray[np.int64]:
    """Count how often TFX's reader returns each row of the table: [rows]."""
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx.components.util import tfxio_utils
    from tfx.types import artifact_utils, standard_artifacts
    from tfx_bsl.public.tfxio import TensorFlowDatasetOptions

    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = root, artifact_utils.encode_split_names(list(manifest.splits))
    schema = schema_pb2.Schema()
    row = schema.feature.add(name=_ROW, type=schema_pb2.INT)
    row.presence.min_fraction = 1
    row.shape.dim.add(size=1)
    read = tfxio_utils.get_tf_dataset_factory_from_artifact([examples], ["benchmark"])
    patterns = [f"{root}/{names.split_folder(split)}/*" for split in manifest.splits]
    counts = np.zeros(manifest.rows_read, np.int64)
    for batch in read(patterns, TensorFlowDatasetOptions(batch_size=4096, num_epochs=1, shuffle=False), schema):
        np.add.at(counts, batch[_ROW].numpy().reshape(-1), 1)
    return counts


def peak_of(command: list[str]) -> Peak:
    """Run a command and return the peak memory of its processes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    heaviest = together = 0
    while process.poll() is None:
        sizes = [resident(pid) for pid in (process.pid, *below(process.pid))]
        heaviest, together = max(heaviest, *sizes), max(together, sum(sizes))
        time.sleep(0.05)
    if process.returncode:
        raise click.ClickException(f"ended with {process.returncode}")
    return Peak(heaviest, together)


def cpu_of_children() -> float:
    """Return the CPU seconds of ended children, without this process, which samples."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def resident(pid: int) -> int:
    """Return the resident bytes of a process. 0 if it has ended."""
    try:
        resident = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(resident[0]) * 1024 if resident else 0


if __name__ == "__main__":
    main()
