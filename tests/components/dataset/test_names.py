from __future__ import annotations

import pytest

from infeed.components.dataset import names


def test_a_split_has_a_folder_of_its_own() -> None:
    assert names.split_dir("/data/run", "train") == "/data/run/Split-train"
    assert names.split_dir("gs://bucket/run", "eval") == "gs://bucket/run/Split-eval"


@pytest.mark.parametrize(
    ("index", "count", "gzip", "expected"),
    [
        (0, 1, True, "data_tfrecord-00000-of-00001.gz"),
        (3, 12, True, "data_tfrecord-00003-of-00012.gz"),
        (3, 12, False, "data_tfrecord-00003-of-00012"),
        (99_999, 123_456, False, "data_tfrecord-99999-of-123456"),  # wider than five digits still sorts among itself
    ],
)
def test_a_shard_is_named_as_tfx_names_it(index: int, count: int, gzip: bool, expected: str) -> None:
    assert names.shard_name(index, count, gzip) == expected


def test_a_shard_beyond_the_count_is_refused() -> None:
    with pytest.raises(ValueError, match="shard 3 of 3"):
        names.shard_name(3, 3, gzip=True)


def test_the_names_of_all_shards_are_told_from_others() -> None:
    two = ["data_tfrecord-00000-of-00002.gz", "data_tfrecord-00001-of-00002.gz"]
    assert names.are_shard_names(two)
    assert names.are_shard_names([name.removesuffix(".gz") for name in two])
    assert names.are_shard_names([])
    for other in (two[:1], [two[0], two[0]], [*two, "more"], [two[0], two[1].removesuffix(".gz")]):
        assert not names.are_shard_names(other)


def test_a_plain_file_name() -> None:
    assert names.is_file_name("part-0.gz")
    for other in ("", ".", "..", ".hidden", "_SUCCESS", "a/b", "/a", "a\n", "a\x1b[2J", "\x9b2J", "a\u202eb"):
        assert not names.is_file_name(other)
