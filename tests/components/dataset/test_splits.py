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

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import splits as assign
from infeed.components.dataset.splits import Buckets, ByColumns, ByName, ByTime, assign_splits


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
        (["2020-12", "2021-01", "2021-02-01T00:00", "2022-01-01"], ("2021-01", "2021-12")),
        (pa.array(DAYS).cast(pa.timestamp("ns", "UTC")), ("2020-01-02T01:00+01:00", "2020-01-04T00:00:00Z")),
        (
            ["2020-01-02T05:29+00:30", "2020-01-02T00:00-05:00", "2020-01-02T23:00-05:00", "2020-01-03T05:00Z"],
            ("2020-01-02T05:00Z", "2020-01-03T00:00-05:00"),
        ),
    ],
)
def test_time_is_cut_before_each_given_moment(values: Any, cuts: tuple[str, ...]) -> None:
    assert assign.assign_rows(batch(when=values), THREE, ByTime("when", cuts)).tolist() == [0, 1, 1, 2]


OFFSETS = st.integers(-1_439, 1_439).map(lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes)))
NEAR = st.datetimes(datetime.datetime(2020, 5, 30), datetime.datetime(2020, 6, 3), timezones=OFFSETS)


@given(st.lists(NEAR, min_size=1, max_size=30), st.lists(NEAR, min_size=2, max_size=2))
def test_a_split_by_time_compares_instants_as_python_does(
    instants: list[datetime.datetime], cuts: list[datetime.datetime]
) -> None:
    cuts = sorted(cuts)
    rule = ByTime("when", tuple(cut.isoformat() for cut in cuts))
    right = [sum(instant >= cut for cut in cuts) for instant in instants]
    assert assign.assign_rows(batch(when=[one.isoformat() for one in instants]), THREE, rule).tolist() == right


SPREAD = [datetime.datetime(2019, 11, 15) + datetime.timedelta(days=23 * number) for number in range(24)]


@pytest.mark.parametrize(
    ("form", "cut"),
    [
        ("%m/%d/%Y", "06/01/2020"),
        ("%d.%m.%Y", "2020-06-01"),
        ("%b %d, %Y", "Jun 1, 2020"),
        ("%d %B %Y", "2020-06"),
        ("%Y/%m/%d %I:%M %p", "2020-06-01T00:00"),
    ],
)
def test_text_is_split_by_its_format(form: str, cut: str) -> None:
    texts = [day.strftime(form) for day in SPREAD]
    found = assign.assign_rows(batch(when=texts), HALVES, ByTime("when", (cut,), form)).tolist()
    assert found == [int(day >= datetime.datetime(2020, 6, 1)) for day in SPREAD]


@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d.%m.%Y", "%b %d, %Y", "%d %B %Y", "%-d.%-m.%Y"])
@pytest.mark.parametrize("iso", [True, False])
def test_text_of_another_form_than_iso_is_refused_without_its_format(form: str, iso: bool) -> None:
    texts, cut = [day.strftime(form) for day in SPREAD], datetime.date(2020, 6, 1)
    written = cut.isoformat() if iso else cut.strftime(form)
    with pytest.raises(InfeedError, match=r"ISO 8601") as raised:
        assign.assign_rows(batch(when=texts), HALVES, ByTime("when", (written,)))
    assert raised.value.where == "split by column 'when'"
    assert texts[0] in raised.value.what
    assert written in raised.value.what
    assert f"--time-format {form.replace('-', '')!r}" in raised.value.do


def test_numbers_have_a_format_too() -> None:
    days = batch(day=[20200531, 20200601], seconds=[1_590_969_599, 1_590_969_600])
    for rule in (ByTime("day", ("2020-06-01",), "%Y%m%d"), ByTime("seconds", ("2020-06-01",), "epoch_s")):
        assert assign.assign_rows(days, HALVES, rule).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("values", "cut", "fix"),
    [
        (["2020-06-01T00:00-05:00"], "2020-06-01", "2020-06-01T00:00:00Z"),
        (["2020-06-01", "2020-06-01T00:00Z"], "2020-06-01", "2020-06-01T00:00:00Z"),
        (["2020-06-01"], "2020-06-01T02:00+01:00", "2020-06-01T01:00:00"),
        (pa.array([0], pa.timestamp("us", "America/New_York")), "2020-06-01", "2020-06-01T00:00:00Z"),
        (pa.array([0], pa.timestamp("ms")), "2020-06-01Z", "2020-06-01"),
        (pa.array([0], pa.timestamp("ms")), "soon", "2020-06-01"),
        (["2020-06-01", "06/02/2020"], "2020-06-01", "%m/%d/%Y"),
        ([20200601], "2020-06-01", "20200601"),
    ],
)
def test_a_cut_of_another_form_than_the_column_names_one_that_fits(values: Any, cut: str, fix: str) -> None:
    with pytest.raises(InfeedError) as raised:
        assign.assign_rows(batch(when=values), HALVES, ByTime("when", (cut,)))
    assert raised.value.where == "split by column 'when'"
    assert cut in raised.value.what
    assert fix in raised.value.do


def test_a_format_that_does_not_fit_is_named() -> None:
    with pytest.raises(InfeedError, match=r"'31/05/2020'.*'%m/%d/%Y'"):
        assign.assign_rows(batch(when=["31/05/2020"]), HALVES, ByTime("when", ("06/01/2020",), "%m/%d/%Y"))
    with pytest.raises(InfeedError, match="'%Q'"):
        ByTime("when", ("2020",), "%Q")


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


@pytest.mark.parametrize(
    ("when", "form"), [(20_240_131, "%Y%m%d"), (1_704_067_200, "epoch_s"), (1_704_067_200_000, "epoch_ms")]
)
def test_a_cut_of_a_column_of_integers_names_their_format(when: int, form: str) -> None:
    with pytest.raises(InfeedError) as raised:
        assign.assign_rows(batch(when=[when]), HALVES, ByTime("when", ("2024-07-01",)))
    assert f"--time-format {form}" in raised.value.do
    assert assign.assign_rows(batch(when=[when]), HALVES, ByTime("when", ("2024-07-01",), form)).tolist() == [0]


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
