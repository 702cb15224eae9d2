import pytest

from infeed.components.errors import InfeedError
from infeed.components.feed.options import ALONE, Workers
from infeed.components.feed.shards import Part, ShardFile, dataset_names, parts_of

SHARDS = [ShardFile("a", 4, 40), ShardFile("b", 3, 30)]


@pytest.mark.parametrize(
    ("workers", "parts"),
    [
        (ALONE, (Part("a", 0, 4, True), Part("b", 0, 3, True))),
        (Workers(0, 2), (Part("a", 0, 4, True),)),  # two files, two workers: a file each
        (Workers(1, 2), (Part("b", 0, 3, True),)),
        (Workers(0, 3), (Part("a", 0, 2, False),)),  # two files, three workers: a third of the records each
        (Workers(1, 3), (Part("a", 2, 2, True),)),
        (Workers(2, 3), (Part("b", 0, 3, True),)),
        (Workers(2, 4), (Part("a", 3, 1, True), Part("b", 0, 1, False))),
    ],
)
def test_each_worker_reads_whole_files_where_they_divide_evenly_else_a_range_of_records(workers, parts):
    assert parts_of(SHARDS, workers) == parts


@pytest.mark.parametrize("count", range(1, 8))
def test_every_record_is_read_by_exactly_one_worker(count):
    read = [
        (part.path, number)
        for index in range(count)
        for part in parts_of(SHARDS, Workers(index, count))
        for number in range(part.skip, part.skip + part.records)
    ]
    assert sorted(read) == [("a", n) for n in range(4)] + [("b", n) for n in range(3)]


def test_a_worker_that_would_read_nothing_is_refused_with_the_numbers_and_the_remedy():
    with pytest.raises(InfeedError, match=r"7 records cannot be shared by 9 workers(.|\n)*Use at most 7 workers"):
        parts_of(SHARDS, Workers(0, 9))


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
