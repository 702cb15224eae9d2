from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import (
    Balance,
    Deal,
    IngestOptions,
    Part,
    ShardOptions,
    Spans,
    has_spans,
    plan_shards,
    split_path,
)
from infeed.components.dataset.splits import ByColumns, ByLabel, ByName, ByTime


@pytest.mark.parametrize(
    "options",
    [
        IngestOptions(shards=ShardOptions(count=3), compression="none", shuffle_seed=None, compat="tfx"),
        IngestOptions(columns=("a", "b"), filter="a > 1", on_bad_row="reject", bad_row_limit=5),
        IngestOptions(split_by=ByColumns(("user", "day"), salt="s")),
        IngestOptions(split_by=ByLabel("label"), balance=Balance("label", ("train", "extra"), "under")),
        IngestOptions(split_by=ByTime("when", ("2020-01-01",))),
        IngestOptions(split_by=ByName("usage")),
    ],
)
def test_options_travel_as_json(options: IngestOptions) -> None:
    assert schema.read(IngestOptions, json.loads(json.dumps(schema.to_plain(options)))) == options


def test_uncompressed_has_no_level() -> None:
    assert IngestOptions(level=6).gzip_level == 6
    assert IngestOptions(compression="none").gzip_level is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "zip"}, "compression is 'zip'"),
        ({"compat": "v1"}, "use one of none, tfx"),
        ({"level": 10}, "level is 10"),
        ({"shuffle_seed": -1}, "shuffle_seed is -1"),
        ({"block_bytes": 10}, "at least 1024"),
        ({"on_bad_row": "skip"}, "use one of fail, reject"),
        ({"bad_row_limit": -1}, "bad_row_limit is -1"),
        ({"columns": ()}, "one or more"),
        ({"columns": ("a", "b", "a")}, "distinct"),
        ({"split_by": ByLabel("y"), "shuffle_seed": None}, "shuffle_seed is None"),
        ({"balance": Balance("y"), "shuffle_seed": None}, "shuffle_seed is None"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        IngestOptions(**options)


def test_impossible_parts() -> None:
    with pytest.raises(InfeedError, match="sampling is 'both'"):
        Balance("y", sampling="both")  # type: ignore[arg-type]
    with pytest.raises(InfeedError, match="columns is empty"):
        ByColumns(())


def write(root: Path, *names: str) -> str:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return str(root)


def test_the_latest_spans_by_number(tmp_path: Path) -> None:
    root = write(tmp_path, *(f"span-{number}/{part}.csv" for number in (2, 9, 10, 11) for part in "ab"), "span-x/a.csv")
    assert Spans("span-{SPAN}/*.csv", last=3).window(root) == {number: f"span-{number}/*.csv" for number in (9, 10, 11)}
    assert list(Spans("span-{SPAN}/*.csv").window(root)) == [2, 9, 10, 11]


def test_a_date_is_a_number_of_days_as_in_tfx(tmp_path: Path) -> None:
    root = write(tmp_path, "1970/01/03/a.csv", "2024-01-01.csv")
    assert Spans("{YYYY}/{MM}/{DD}/*.csv").window(root) == {2: "1970/01/03/*.csv"}
    assert Spans("{YYYY}-{MM}-{DD}.csv").window(root) == {19723: "2024-01-01.csv"}


@pytest.mark.parametrize("names", [("span-3/a", "span-03/a"), ("other/a",)])
def test_no_span_and_two_of_one_number_are_errors(tmp_path: Path, names: tuple[str, ...]) -> None:
    root = write(tmp_path, *names)
    with pytest.raises(InfeedError, match="span") as caught:
        Spans("span-{SPAN}/*").window(root)
    assert str(caught.value.where).startswith(root)


@pytest.mark.parametrize("pattern", ["*.csv", "{SPAN}/{SPAN}", "{YYYY}-{MM}", "{SPAN}-{DD}"])
def test_the_placeholders_of_a_pattern(pattern: str) -> None:
    with pytest.raises(InfeedError) as caught:
        Spans(pattern)
    assert caught.value.where == "Spans"


def test_a_path_is_split_above_its_first_placeholder() -> None:
    assert split_path("s3://b/taxi/span-{SPAN}/*.csv") == ("s3://b/taxi", "span-{SPAN}/*.csv")
    assert has_spans("a/{DD}.csv")
    assert not has_spans("a/{x}.csv")


def test_files_of_several_spans_are_one_pattern(tmp_path: Path) -> None:
    root = write(tmp_path, "span-1/a.csv", "span-2/b.csv", "span-3/c.csv")
    found = files.glob(root, "{span-1/*.csv,span-3/*.csv}")
    assert [files.relative(file.path, root) for file in found] == ["span-1/a.csv", "span-3/c.csv"]


MB, MIB = 10**6, 1 << 20


@pytest.mark.parametrize(
    ("total_bytes", "records", "options", "count", "reason"),
    [
        (0, 0, ShardOptions(), 1, "smaller than 10 MB"),
        (1 * MB, 569, ShardOptions(), 1, "smaller than 10 MB"),
        (35 * MB, 10**6, ShardOptions(), 3, "smaller than 10 MB"),
        (99 * MB, 10**6, ShardOptions(), 9, "smaller than 10 MB"),
        (100 * MB, 10**6, ShardOptions(), 10, "files to read at once"),
        (1000 * MB, 10**6, ShardOptions(), 10, "files to read at once"),
        (1280 * MIB, 10**6, ShardOptions(), 10, "at most 134 MB"),
        (1280 * MIB + 1, 10**6, ShardOptions(), 11, "at most 134 MB"),
        (400 * MB, 10**6, ShardOptions(hosts=4), 40, "files to read at once"),
        (1281 * MIB, 10**6, ShardOptions(hosts=4, readers_per_host=1), 12, "12 is a multiple of 4 hosts"),
        (1 * MB, 10**6, ShardOptions(hosts=4), 4, "4 is a multiple of 4 hosts"),  # a host without a file stands idle
        (1 * MB, 10**6, ShardOptions(count=7), 7, "set to 7"),
        (10**12, 10**6, ShardOptions(count=7), 7, "set to 7"),
        (1 * MB, 3, ShardOptions(count=7), 3, "only 3 records"),  # an empty shard helps no reader
        (300 * MB, 4, ShardOptions(), 4, "only 4 records"),
    ],
)
def test_the_rule(total_bytes: int, records: int, options: ShardOptions, count: int, reason: str) -> None:
    plan = plan_shards(total_bytes, records, options)
    assert plan.count == count
    assert reason in plan.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count is 0"),
        ({"hosts": 0}, "hosts is 0"),
        ({"min_bytes": 0}, "min_bytes is 0"),
        ({"min_bytes": 20, "target_bytes": 10}, "min_bytes is 20, more than target_bytes, which is 10"),
    ],
)
def test_impossible_shards(options: dict[str, int], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        ShardOptions(**options)


def taken(parts: list[Part], windows: int, interleave: bool) -> list[list[tuple[int, int, int]]]:
    """(part, start, stop) of what each window takes."""
    deal = Deal(windows, sum(part.bytes for part in parts), interleave)
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(windows)]
    before = Part(0, 0)
    for number, part in enumerate(parts):
        bounds = deal.bounds(part, before, range(windows)).tolist()
        for window, (start, stop) in enumerate(itertools.pairwise(bounds)):
            if start < stop:
                found[window].append((number, start, stop))
        before = Part(before.records + part.records, before.bytes + part.bytes)
    return found


def test_in_a_row_each_window_takes_a_run_of_the_input() -> None:
    assert taken([Part(5, 50), Part(1, 10), Part(6, 60)], 3, interleave=False) == [
        [(0, 0, 4)],
        [(0, 4, 5), (1, 0, 1), (2, 0, 2)],
        [(2, 2, 6)],
    ]


def test_in_a_row_windows_are_even_in_bytes() -> None:
    assert taken([Part(100, 1_000), Part(10, 1_000)], 2, interleave=False) == [[(0, 0, 100)], [(1, 0, 10)]]


def test_interleaved_every_part_reaches_every_window() -> None:
    assert taken([Part(6, 60), Part(6, 60)], 3, interleave=True) == [
        [(0, 0, 2), (1, 0, 2)],
        [(0, 2, 4), (1, 2, 4)],
        [(0, 4, 6), (1, 4, 6)],
    ]


PARTS = st.lists(st.builds(Part, st.integers(0, 20), st.integers(1, 1_000)), max_size=8)


@given(parts=PARTS, count=st.integers(1, 9), interleave=st.booleans())
def test_every_record_goes_to_one_window(parts: list[Part], count: int, interleave: bool) -> None:
    windows = taken(parts, count, interleave)
    records = [(part, record) for slices in windows for part, start, stop in slices for record in range(start, stop)]
    assert sorted(records) == [(number, record) for number, part in enumerate(parts) for record in range(part.records)]
    sizes = [sum(stop - start for _, start, stop in slices) for slices in windows]
    assert max(sizes) - min(sizes) <= 1 or not interleave


@given(parts=PARTS, count=st.integers(1, 9), interleave=st.booleans(), data=st.data())
def test_some_windows_begin_where_they_do_among_all(
    parts: list[Part], count: int, interleave: bool, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(first, count))
    deal, before = Deal(count, sum(part.bytes for part in parts), interleave), Part(0, 0)
    for part in parts:
        every = deal.bounds(part, before, range(count))
        assert deal.bounds(part, before, range(first, stop)).tolist() == every[first : stop + 1].tolist()
        before = Part(before.records + part.records, before.bytes + part.bytes)


def test_bytes_and_windows_of_many_terabytes_do_not_overflow() -> None:
    deal = Deal(3_000_000, 10**14, interleave=False)
    before = Part(9 * 10**10, 9 * 10**13)
    part = Part(100_000, 10**14 - before.bytes)
    assert deal.bounds(part, before, range(2_999_999, 3_000_000)).tolist() == [99_999, 100_000]
