import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext
from infeed.components.feed.shards import (
    RecordRange,
    ShardFile,
    dataset_names,
    shard_files,
    uneven,
    worker_ranges,
)

SHARDS = [ShardFile("a", 4, 40), ShardFile("b", 3, 30)]


@pytest.mark.parametrize(
    ("workers", "parts"),
    [
        (SINGLE_WORKER, (RecordRange("a", 0, 4, True), RecordRange("b", 0, 3, True))),
        (WorkerContext(0, 2), (RecordRange("a", 0, 4, True),)),  # two files, two workers: a file each
        (WorkerContext(1, 2), (RecordRange("b", 0, 3, True),)),
        (
            WorkerContext(0, 3),
            (RecordRange("a", 0, 2, False),),
        ),  # two files, three workers: a third of the records each
        (WorkerContext(1, 3), (RecordRange("a", 2, 2, True),)),
        (WorkerContext(2, 3), (RecordRange("b", 0, 3, True),)),
        (WorkerContext(2, 4), (RecordRange("a", 3, 1, True), RecordRange("b", 0, 1, False))),
    ],
)
def test_each_worker_reads_whole_files_where_they_divide_evenly_else_a_range_of_records(workers, parts):
    assert worker_ranges(SHARDS, workers) == parts


@pytest.mark.parametrize(
    ("records", "readers", "named"),
    [
        ((90, 5, 5), 2, "s0"),  # it takes one reader the time of 90, and all others that of 10
        ((40, 30, 30), 2, ""),
        ((40, 30, 30), 3, ""),
        ((10, 50, 40), 3, "s1"),
        ((100,), 2, ""),
        ((90, 5, 5), 1, ""),
    ],
)
def test_a_shard_that_keeps_one_reader_busy_alone_is_named(records, readers, named):
    shards = [ShardFile(f"folder/s{place}", count, count) for place, count in enumerate(records)]
    advice = uneven(shards, readers)
    assert named in advice
    assert bool(advice) == bool(named)


@pytest.mark.parametrize("count", range(1, 8))
def test_every_record_is_read_by_exactly_one_worker(count):
    read = [
        (part.path, number)
        for index in range(count)
        for part in worker_ranges(SHARDS, WorkerContext(index, count))
        for number in range(part.skip, part.skip + part.records)
    ]
    assert sorted(read) == [("a", n) for n in range(4)] + [("b", n) for n in range(3)]


def test_a_worker_that_would_read_nothing_is_refused_with_the_numbers_and_the_remedy():
    with pytest.raises(InfeedError, match=r"7 records cannot be shared by 9 workers(.|\n)*use at most 7 workers"):
        worker_ranges(SHARDS, WorkerContext(0, 9))


@pytest.mark.parametrize(
    ("roots", "names"),
    [
        (["/run/Old/examples/3", "/run/New/examples/4"], ["Old", "New"]),  # of components, on one machine
        (["gs://b/job/Old_-81/examples", "gs://b/job/New_7/examples"], ["Old", "New"]),  # and on Vertex AI
        (["/data/clicks_2023", "/data/clicks_2024"], ["clicks_2023", "clicks_2024"]),
        (["/a/x/1", "/a/y/2", "/b/x/3"], ["1", "2", "3"]),
        (["/a/x", "/a/y", "/b/x"], ["/a/x", "/a/y", "/b/x"]),
    ],
)
def test_datasets_are_called_after_what_their_paths_differ_in(roots, names):
    assert list(dataset_names(roots).values()) == names


def test_a_folder_that_holds_other_files_than_its_manifest_tells_of_is_refused(tmp_path):
    split = Split.of((Shard("Split-train/data_tfrecord-00000-of-00001", 1, 1, "00000000"),))
    source = Source("csv", "", 1, 1)
    Manifest(source=source, options={}, schema=(), splits={"train": split}, rows_read=1).write(str(tmp_path))
    (tmp_path / "Split-train").mkdir()
    (tmp_path / "Split-train" / "data_tfrecord-00000-of-00001").touch()
    assert [shard.records for shard in shard_files([f"{tmp_path}/Split-train/*"])] == [1]
    (tmp_path / "Split-train" / "left-over").touch()
    with pytest.raises(InfeedError, match="left-over is unknown"):
        shard_files([f"{tmp_path}/Split-train/*"])
