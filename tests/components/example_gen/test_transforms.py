from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.dataset.manifest import Manifest, Source
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import ByLabel
from infeed.components.engine.beam_runner import LOCAL_RUNNER
from infeed.components.example_gen import ingest
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRows, OpenedSource, Read, Task
from infeed.components.example_gen.sources.csv.reader import open_csv
from infeed.components.example_gen.sources.csv.rows import CsvOptions
from infeed.components.example_gen.sources.images.reader import open_images

pytestmark = pytest.mark.tfx

MakeJob = Callable[..., Job]


def run(tasks: tuple[Task, ...], job: Job) -> None:
    import apache_beam as beam

    from infeed.components.example_gen.transforms import run_pipeline

    run_pipeline(tasks, job, lambda: beam.Pipeline(LOCAL_RUNNER, argv=[]))


def content(root: str) -> dict[str, str]:
    return {
        os.path.relpath(path, root): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "options",
    [
        IngestOptions(shuffle_seed=0),
        IngestOptions(shuffle_seed=None),
        IngestOptions(split_by=ByLabel("label"), balance=Balance("label")),
    ],
    ids=["shuffled", "in order", "by label"],
)
def test_beam_writes_what_one_process_writes(digits: str, job: MakeJob, options: IngestOptions) -> None:
    shards = ShardOptions(min_bytes=1_000, target_bytes=20_000, readers_per_host=3)
    options = dataclasses.replace(options, shards=shards, block_bytes=2_048)
    opened = open_images(digits, {None: "*/*"}, options)
    one = job(opened, options)
    alone = ingest.ingest(opened.tasks, one)
    expected = content(one.root)
    run(opened.tasks, one)
    assert len(alone.splits["train"].shards) == 3
    assert content(one.root) == expected


def five_rows(_: Any, *, bad_rows: BadRows, blocks: int) -> Iterator[pa.RecordBatch]:
    for _ in range(blocks):
        yield pa.RecordBatch.from_pydict({"number": [1, 2, 3, 4, 5]})


def weigh(element: Any, path: str) -> None:
    """Appends to `path` how many bytes an element takes; what is grouped under a key goes one by one."""
    parts = element if isinstance(element, tuple) else (element,)
    with open(path, "a") as file:
        for part in parts:
            several = isinstance(part, Iterable) and not isinstance(part, str | tuple)
            file.writelines(f"{len(pickle.dumps(one))}\n" for one in (part if several else (part,)))


def element_sizes(tasks: int, blocks: int, job: MakeJob) -> list[int]:
    """Runs `tasks` of so many `blocks` each into as many shards, and weighs every element between two steps."""
    import apache_beam as beam

    from infeed.components.example_gen.transforms import run_pipeline

    schema, read = pa.schema([("number", pa.int64())]), partial(five_rows, blocks=blocks)
    whats = tuple(Task(order, f"{order:06d}") for order in range(tasks))
    one = job(OpenedSource(Source("test", "", 0, 0), schema, whats, read), IngestOptions(shards=ShardOptions(tasks)))
    weights = Path(one.root).with_name("weights")
    weights.unlink(missing_ok=True)

    class Weighed(beam.Pipeline):  # type: ignore[misc]
        def run(self, *args: Any, **given: Any) -> Any:
            (ours,) = self.transforms_stack[0].parts
            for step in ours.parts:
                step.outputs[None] | f"Weigh {step.full_label}" >> beam.Map(weigh, str(weights))
            return super().run(*args, **given)

    run_pipeline(whats, one, lambda: Weighed(LOCAL_RUNNER, argv=[]))
    assert Manifest.read(one.root).rows_read == tasks * blocks * 5
    return sorted(map(int, weights.read_text().split()))


def test_no_element_grows_with_the_input(job: MakeJob) -> None:
    few, many = element_sizes(2, 1, job), element_sizes(20, 15, job)
    assert len(many) > 20 * 3  # every task, its count and its shard are weighed
    assert many[-1] <= few[-1] + 100 < 2_000  # the counts of more shards; the plan of 300 blocks took 100 kB


def break_after(what: Any, *, read: Read, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    yield from read(what, bad_rows=bad_rows)
    raise RuntimeError("worker lost")


def test_a_lost_worker_leaves_no_shard_and_no_manifest(cancer: str, job: MakeJob) -> None:
    opened = open_csv(cancer, {None: "*"}, IngestOptions(), CsvOptions())
    one = job(OpenedSource(opened.provenance, opened.schema, opened.tasks, partial(break_after, read=opened.read)))
    with pytest.raises(RuntimeError, match="worker lost"):
        run(opened.tasks, one)
    assert content(one.root) == {}

    again = job(opened)
    run(opened.tasks, again)
    assert Manifest.read(again.root).rows_read == 569
