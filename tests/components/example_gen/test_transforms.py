from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.example_gen import ingest
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.sources.csv import CsvOptions, open_csv
from infeed.components.example_gen.sources.images import open_images

pytestmark = pytest.mark.tfx

MakeJob = Callable[..., Job]


def run(tasks: tuple[ingest.Task, ...], job: Job) -> None:
    import apache_beam as beam

    from infeed.components.example_gen.transforms import run_pipeline

    run_pipeline(tasks, job, lambda: beam.Pipeline(argv=[]))


def content(root: str) -> dict[str, str]:
    return {
        os.path.relpath(path, root): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("shuffle_seed", [0, None])
def test_beam_writes_what_one_process_writes(digits: str, job: MakeJob, shuffle_seed: int | None) -> None:
    shards = ShardOptions(min_bytes=1_000, target_bytes=20_000, readers_per_host=3)
    options = IngestOptions(shards=shards, block_bytes=2_048, shuffle_seed=shuffle_seed)
    opened = open_images(digits, {None: "*/*"}, options)
    one = job(opened, options)
    alone = ingest.ingest(opened.tasks, one)
    expected = content(one.root)
    run(opened.tasks, one)
    assert len(alone.splits["train"].shards) == 3
    assert content(one.root) == expected


def break_after(what: Any, *, read: ingest.Read, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    yield from read(what, bad_rows=bad_rows)
    raise RuntimeError("worker lost")


def test_a_lost_worker_leaves_no_shard_and_no_manifest(cancer: str, job: MakeJob) -> None:
    opened = open_csv(cancer, {None: "*"}, IngestOptions(), CsvOptions())
    one = job(ingest.Input(opened.source, opened.schema, opened.tasks, partial(break_after, read=opened.read)))
    with pytest.raises(RuntimeError, match="worker lost"):
        run(opened.tasks, one)
    assert content(one.root) == {}

    again = job(opened)
    run(opened.tasks, again)
    assert Manifest.read(again.root).rows_read == 569
