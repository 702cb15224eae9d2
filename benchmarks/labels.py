"""Memory and time of ingest's planner for stratified splits.

    python benchmarks/labels.py --runs 1000 --labels 1000

The script generates summaries of tasks with two runs each, in which every run has every label, and plans two splits.
It prints the peak memory of the process at the start, after the reports of all tasks, and at the end.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.example_gen.planning import SpilledTask, limited, plan_writes
from infeed.components.example_gen.shuffle import list_spills
from infeed.components.example_gen.spills import Spills

_RUNS_OF_TASK = 2
_RECORD = 100  # bytes of a record


def tasks(runs: int, labels: int) -> Iterator[SpilledTask]:
    """Yield the summaries of all tasks. Each run has 1 to 13 records of each label."""
    for order in range(runs // _RUNS_OF_TASK):
        files = [
            (None, f"/data/out/.unfinished/level-0/all/{order:08d}-{run:06d}.arrow") for run in range(_RUNS_OF_TASK)
        ]
        label, file = np.tile(np.arange(labels), _RUNS_OF_TASK), np.repeat(np.arange(_RUNS_OF_TASK), labels)
        records = 1 + (label * 7 + order * 3 + file) % 13
        start = np.cumsum(records) - records
        strata = [(f"label-{number}", None) for number in range(labels)]
        columns = (file.astype(np.int32), label.astype(np.int32), start, records, records * _RECORD)
        yield SpilledTask(order, int(records.sum()), 0, 0, None, None, (), (), Spills(files, strata, *columns))


def peak() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 1_000_000:,} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--labels", type=int, default=1_000)
    given = parser.parse_args()
    buckets, options = Buckets((("train", 2), ("eval", 1))), IngestOptions(split_by=ByLabel("label"))
    print(f"at the start: {peak()}")
    reported = list(limited(tasks(given.runs, given.labels), options))
    print(f"all tasks have reported: {peak()}")
    start = time.perf_counter()
    _, spills = plan_writes(reported, buckets.names, buckets, options, place="")
    with tempfile.TemporaryDirectory() as folder:
        for split, found in spills.items():
            list_spills(folder, split, found)
    print(f"planned in {time.perf_counter() - start:.1f} s: {peak()}")


if __name__ == "__main__":
    main()
