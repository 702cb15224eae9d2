from __future__ import annotations

import bisect
import datetime
import hashlib
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset import splits as assign
from infeed.components.dataset.splits import Buckets, ByColumns, ByName, ByTime, assign_splits
from infeed.components.errors import InfeedError


def bucket_of(key: bytes, limits: list[int]) -> int:
    """The rule as TFX states it, one key at a time."""
    return bisect.bisect(limits, int(hashlib.sha256(key).hexdigest(), 16) % limits[-1])


@given(
    keys=st.lists(st.binary(max_size=50), max_size=20), shares=st.lists(st.integers(1, 10**9), min_size=1, max_size=4)
)
def test_every_key_goes_where_one_big_integer_sends_it(keys: list[bytes], shares: list[int]) -> None:
    limits = [sum(shares[: end + 1]) for end in range(len(shares))]
    buckets = Buckets(tuple((f"split{number}", share) for number, share in enumerate(shares)))
    assigned = assign_splits(keys, buckets)
    assert assigned.tolist() == [bucket_of(key, limits) for key in keys]


def test_shares_are_kept_about() -> None:
    keys = [str(number).encode() for number in range(3_000)]
    assigned = assign_splits(keys, Buckets((("train", 2), ("eval", 1)))).tolist()
    assert set(assigned) == {0, 1}
    assert 1_900 < assigned.count(0) < 2_100


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((), "its own name"),
        ((("a", 1), ("a", 1)), "its own name"),
        ((("../a", 1),), "remove /"),
        ((("a", 0),), "split 'a' has 0 buckets"),
        ((("a", 1 << 32), ("b", 1)), "4294967297 buckets"),
    ],
)
def test_impossible_splits(shares: tuple[tuple[str, int], ...], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        Buckets(shares)


HALVES = Buckets((("train", 1), ("eval", 1)))
THREE = Buckets((("train", 1), ("eval", 1), ("test", 1)))


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def groups(of: pa.RecordBatch, split_by: ByColumns) -> dict[tuple[Any, ...], set[int]]:
    """Values of the columns -> the splits that their rows are in."""
    found: dict[tuple[Any, ...], set[int]] = {}
    for row, split in zip(of.to_pylist(), assign.assign_rows(of, HALVES, split_by).tolist(), strict=True):
        found.setdefault(tuple(row[name] for name in split_by.columns), set()).add(split)
    return found


USERS = batch(user=[f"u{row % 40}" if row % 9 else None for row in range(400)], day=[row % 3 for row in range(400)])


@pytest.mark.parametrize("columns", [("user",), ("user", "day")])
def test_rows_that_agree_in_the_columns_are_in_one_split(columns: tuple[str, ...]) -> None:
    found = groups(USERS, ByColumns(columns))
    assert all(len(splits) == 1 for splits in found.values())
    assert {split for splits in found.values() for split in splits} == {0, 1}


def test_a_salt_divides_differently_and_always_the_same() -> None:
    plain, salted, again = (groups(USERS, ByColumns(("user",), salt)) for salt in ("", "s", "s"))
    assert plain != salted == again


DAYS = [datetime.date(2020, 1, day) for day in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("values", "cuts"),
    [
        (DAYS, ("2020-01-02", "2020-01-04")),
        (pa.array(DAYS).cast(pa.timestamp("s")), ("2020-01-02", "2020-01-03T12:00:00")),
        ([day.isoformat() for day in DAYS], ("2020-01-02", "2020-01-04")),  # text that sorts by time
        ([1, 2, 3, 4], ("2", "4")),
        ([0.5, 2.0, 2.5, 9.0], ("2.0", "3")),
        (pa.array([Decimal("0.50"), Decimal("2.00"), Decimal("2.50"), Decimal("9.00")]), ("2", "3.1")),
        (pa.array(["2020", "2021", "2021", "2022"]).dictionary_encode(), ("2021", "2022")),
    ],
)
def test_time_is_cut_before_each_given_moment(values: Any, cuts: tuple[str, ...]) -> None:
    assert assign.assign_rows(batch(when=values), THREE, ByTime("when", cuts)).tolist() == [0, 1, 1, 2]


def test_a_column_names_the_split() -> None:
    assert assign.assign_rows(batch(usage=["eval", "train"]), HALVES, ByName("usage")).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("split_by", "message"),
    [
        (ByColumns(("nobody",)), r"(?s)no column 'nobody'.*use one of usage, gap, when"),
        (ByName("usage"), r"(?s)no split 'test'.*split by column 'usage'.*train, eval"),
        (ByName("gap"), r"(?s)a value is empty.*split by column 'gap'"),
        (ByTime("when", ("soon",)), "cut 'soon' is not of type int64"),
        (ByTime("nan", ("2",)), r"(?s)a value is empty.*split by column 'nan'"),
        (ByTime("list", ("2",)), r"cut '2' is not of type list<item: int64>"),
        (ByName("list"), r"(?s)type is list<item: int64>.*split by column 'list'.*text"),
    ],
)
def test_a_row_that_belongs_nowhere(split_by: ByColumns | ByTime | ByName, message: str) -> None:
    rows = batch(usage=["train", "test"], gap=["a", None], when=[1, 2], nan=[1.0, math.nan], list=[[1], [2]])
    with pytest.raises(InfeedError, match=message):
        assign.assign_rows(rows, HALVES, split_by)


def test_cuts_out_of_order() -> None:
    with pytest.raises(InfeedError, match=r"cuts 4, 2 are not ascending"):
        assign.assign_rows(batch(when=[1]), THREE, ByTime("when", ("4", "2")))


@pytest.mark.parametrize(
    ("buckets", "split_by", "message"),
    [
        (THREE, ByTime("when", ("1",)), "1 cuts for the splits train, eval, test"),
        (Buckets((("train", 1),), feature="user"), ByName("usage"), "split by feature 'user' and by name"),
    ],
)
def test_rules_that_do_not_fit_the_splits(buckets: Buckets, split_by: ByTime | ByName, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        assign.check_splits(buckets, split_by)
