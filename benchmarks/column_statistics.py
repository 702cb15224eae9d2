"""Column statistics: our StatisticsGen and TFX's on the same dataset, and the cost of counting during ingest.

    python benchmarks/column_statistics.py --rows 100000

Ours runs twice: with the counts of ingest, and without them and with an empty cache, so that it reads all records. The
memory is that of a process that only reads the training split.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
from clock import timed
from harness import Result, Side, as_json, interleave, missing, report
from ingest import BUCKETS, ingest_alone, write_table

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.sources.csv_files import open_csv

# getrusage does not fit: a forked process starts with the peak of its parent.
_READ = """
import sys
from pathlib import Path
from infeed.components.dataset.statistics.table_statistics import statistics_of
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak()
statistics_of(sys.argv[1], "train", cache_dir=sys.argv[2])
print(1024 * (peak() - before))
"""


@click.command()
@click.option("--rows", default=100_000, show_default=True)
@click.option("--columns", default=20, show_default=True, help="Columns: integers, floats and text in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@as_json
def main(rows: int, columns: int, turns: int, as_json: bool) -> None:
    """Measure column statistics."""
    with tempfile.TemporaryDirectory() as folder:
        report(results(Path(folder), rows, columns, turns), as_json)


def results(folder: Path, rows: int, columns: int, turns: int) -> Iterator[Result]:
    case = f"{rows:,} rows x {columns} columns"
    write_table(folder / "data", rows, columns)
    counted, uncounted = folder / "counted", folder / "uncounted"
    writers = {
        "with statistics": partial(write_dataset, folder / "data", counted, True),
        "without": partial(write_dataset, folder / "data", uncounted, False),
    }
    for run in writers.values():
        run()  # pay first-time costs before measuring
    took = interleave({name: partial(timed, run) for name, run in writers.items()}, turns)
    with_statistics, without = (Side.of(name, costs) for name, costs in took.items())
    yield Result("ingest, statistics counted", case, with_statistics, without, turns)
    yield from statistics_gen(folder, case, turns)


def statistics_gen(folder: Path, case: str, turns: int) -> Iterator[Result]:
    if absent := missing("tfx"):
        yield Result("StatisticsGen", case, Side("infeed", absent=absent), None, 0)
        return
    os.environ["HOME"] = str(folder / "home")  # the cache is below HOME, and each turn empties it
    contenders = {
        "tfx": partial(execute, "tfx.components", folder / "counted", folder / "out"),
        "infeed": partial(execute, "infeed.components", folder / "counted", folder / "out"),
        "infeed, records read": partial(execute, "infeed.components", folder / "uncounted", folder / "out"),
    }
    for run in contenders.values():
        run()
    took = interleave({name: partial(timed, run) for name, run in contenders.items()}, turns)
    # Growth in bytes of a process that computes the statistics of the training split.
    command = [sys.executable, "-c", _READ, str(folder / "uncounted"), str(folder / "cache")]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    memory = {"infeed, records read": grown}
    sides = {name: Side.of(name, costs, memory=memory.get(name)) for name, costs in took.items()}
    for name in ("infeed", "infeed, records read"):
        yield Result("StatisticsGen", case, sides[name], sides["tfx"], turns)


def write_dataset(data: Path, out: Path, statistics: bool) -> None:
    """Write the table as a dataset, without Beam."""
    options = IngestOptions(statistics=statistics)
    ingest_alone(open_csv(str(data), {None: "*"}, options), out, options)


def execute(module: str, dataset: Path, out: Path) -> None:
    """Run a StatisticsGen's executor as an orchestrator does, with an empty cache."""
    import importlib
    import shutil

    from tfx.components.example_gen import write_split
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import channel_utils, standard_artifacts

    shutil.rmtree(os.environ["HOME"], ignore_errors=True)
    examples, statistics = standard_artifacts.Examples(), standard_artifacts.ExampleStatistics()
    examples.uri, statistics.uri, examples.split_names = str(dataset), str(out), json.dumps(BUCKETS.names)
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
    examples_utils.set_file_format(examples, write_split.to_file_format_str(example_gen_pb2.FORMAT_TFRECORDS_GZIP))
    component = importlib.import_module(module).StatisticsGen(examples=channel_utils.as_channel([examples]))
    executor = component.executor_spec.executor_class()
    executor.Do({"examples": [examples]}, {"statistics": [statistics]}, component.exec_properties)


if __name__ == "__main__":
    main()
