"""Ingest by engines whose workers have only the output's folder in common: bytes, elements, requests, leftovers."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Manifest, Source
from infeed.components.dataset.options import Balance, IngestOptions, ShardOptions
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.engine.beam_runner import Named, pipeline_of
from infeed.components.engine.on_beam import OnBeam
from infeed.components.example_gen import ingest, planning, shuffle
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRows, OpenedSource, Read, Task
from infeed.components.example_gen.sources.csv_files import open_csv
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.image_files import open_images

MakeJob = Callable[..., Job]
MB = 1 << 20


def run(tasks: tuple[Task, ...], job: Job, options: list[str]) -> Manifest:
    with OnBeam(lambda: pipeline_of(options), job.temporary, Named.of(options)) as engine:
        return ingest.ingest(tasks, job, map_fn=engine.map)


def content(root: str) -> dict[str, str]:
    return {
        os.path.relpath(path, root): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


@pytest.mark.tfx
@pytest.mark.parametrize(
    "options",
    [
        IngestOptions(shuffle_seed=0),
        pytest.param(IngestOptions(shuffle_seed=None), marks=pytest.mark.image),
        pytest.param(IngestOptions(split_by=ByLabel("label"), balance=Balance("label")), marks=pytest.mark.image),
    ],
    ids=["shuffled", "in order", "by label"],
)
@pytest.mark.parametrize("levels", [pytest.param(0, marks=pytest.mark.image), 2])
def test_beam_writes_what_one_process_writes(
    digits: str,
    job: MakeJob,
    options: IngestOptions,
    levels: int,
    threaded_options: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = ShardOptions(min_bytes=1_000, target_bytes=20_000, readers_per_host=3)
    options = dataclasses.replace(options, shards=shards, block_bytes=2_048)
    opened = open_images(digits, {None: "*/*"}, options)
    one = job(opened, options)
    alone = ingest.ingest(opened.tasks, one)
    expected = content(one.root)
    if levels:
        monkeypatch.setattr(shuffle, "ON_DISK", shuffle.Ranges(1_000, 0))
        monkeypatch.setattr(shuffle, "_GROUP_BYTES", 20_000)
    run(opened.tasks, one, threaded_options)
    assert len(alone.splits["train"].shards) == 3
    assert content(one.root) == expected


def five_rows(_: Any, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"number": [1, 2, 3, 4, 5]})


@pytest.mark.tfx
def test_no_element_grows_with_a_task_or_a_shard(job: MakeJob, threaded_options: list[str]) -> None:
    import apache_beam as beam

    schema = pa.schema([("number", pa.int64())])
    tasks = tuple(Task(order, f"{order:02d}" * MB) for order in range(20))  # as of many small files
    one = job(OpenedSource(Source("test", "", 0, 0), schema, tasks, five_rows), IngestOptions(shards=ShardOptions(20)))
    assert run(tasks, one, threaded_options).rows_read == 100  # this runner refuses elements of more than a kilobyte
    for large in ([(0, "x" * 2_000)], [(0, "x" * 20)] * 100):
        pipeline = pipeline_of(threaded_options)
        pipeline | beam.Create(large) | beam.GroupByKey()
        with pytest.raises(Exception, match="takes 2,"):
            pipeline.run()


def break_after(what: Any, *, read: Read, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    yield from read(what, bad_rows=bad_rows)
    raise RuntimeError("worker lost")


@pytest.mark.tfx
def test_a_lost_worker_leaves_no_shard_and_no_manifest(cancer: str, job: MakeJob, threaded_options: list[str]) -> None:
    opened = open_csv(cancer, {None: "*"}, IngestOptions(), CsvOptions())
    one = job(OpenedSource(opened.provenance, opened.schema, opened.tasks, partial(break_after, read=opened.read)))
    with pytest.raises(RuntimeError, match="worker lost"):
        run(opened.tasks, one, threaded_options)
    assert content(one.root) == {}

    again = job(opened)
    run(opened.tasks, again, threaded_options)
    assert Manifest.read(again.root).rows_read == 569


def noise(block: int, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    rows = np.random.default_rng(block).bytes(4 * MB)
    yield pa.RecordBatch.from_pydict({"x": [rows[start : start + 4_096] for start in range(0, len(rows), 4_096)]})


@pytest.fixture
def noisy(job: MakeJob) -> tuple[tuple[Task, ...], Job]:
    """24 MB of records from six tasks, for 120 shards."""
    tasks = tuple(Task(order, order) for order in range(6))
    options = IngestOptions(compression="none", statistics=False, shards=ShardOptions(120))
    source = OpenedSource(Source("noise", "", 0, 0), pa.schema([("x", pa.binary())]), tasks, noise)
    return tasks, job(source, options, Buckets((("all", 1),)))


@pytest.mark.slow
def test_requests_to_a_store_grow_with_the_records_and_not_with_tasks_times_shards(
    noisy: tuple[tuple[Task, ...], Job], s3: str, s3_requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, one = noisy
    expected, scale = ingest.ingest(tasks, one), 128
    monkeypatch.setattr(planning, "WINDOW_BYTES", planning.WINDOW_BYTES // scale)
    monkeypatch.setattr(shuffle, "_GROUP_BYTES", shuffle._GROUP_BYTES // scale)
    monkeypatch.setattr(shuffle, "ON_STORE", shuffle.Ranges(shuffle.ON_STORE.least // scale, 1))
    s3_requests.clear()
    assert ingest.ingest(tasks, dataclasses.replace(one, root=s3)).splits["all"].records == 6 * 1_024
    size, of_level = expected.splits["all"].bytes * scale, [6, 50, 50, 120]  # spills, files of two levels, shards
    found = [[one for one in s3_requests if f"/.ingest/level-{level}/" in one] for level in range(4)]
    for requests, files_of_level, readers in zip(found, of_level, of_level[1:], strict=False):
        assert 0 < len(requests) <= size / 4e6 + 3 * (files_of_level + readers)
    assert not found[3]
    assert files.list_folders(s3) == ["Split-all"]
