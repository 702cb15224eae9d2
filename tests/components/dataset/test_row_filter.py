from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.row_filter import parse, passes

BATCH = pa.RecordBatch.from_pydict(
    {
        "fare": [1.5, 0.0, None, 9.0],
        "company": ["A", "B", "C", None],
        "trip/miles": [1, -2, 3, 4],
        "cash": [True, False, True, False],
        "day": [datetime.date(2020, 1, day) for day in (1, 2, 3, 4)],
        "us": ["01/01/2020", "1/2/2020", None, "12/31/2019"],
        "sent": ["2020-01-01T23:00-05:00", None, "2020-01-02T03:59Z", "2020-01-02T05:00+00:30"],
        "at": pa.array([0, 1_577_836_800_000, None, 1], pa.timestamp("ms")),
        "zoned": pa.array([0, 1_577_836_800, None, 1], pa.timestamp("s", "America/New_York")),
        "epoch": [0, 1_577_836_800, None, 1],
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("fare > 0", [0, 3]),  # a null does not pass
        ("0 < fare <= 5", [0]),
        ("fare is None", [2]),
        ("fare is not None and not cash", [1, 3]),
        ('company in ["A", "C"] or fare == 9', [0, 2, 3]),
        ("company not in ('A',) and company != 'B'", [2]),
        ('field("trip/miles") >= -2 and cash', [0, 2]),
        ("field('trip/miles') == -2", [1]),
        ('day >= time("2020-01-03")', [2, 3]),
        ('time("2020-01-02") <= day < time("2020-01-04")', [1, 2]),
        ('time(us, "%m/%d/%Y") >= time("2020-01-01")', [0, 1]),
        ('not time(us, "%m/%d/%Y") >= time("01/01/2020", "%m/%d/%Y")', [3]),
        ('sent >= time("2020-01-02T04:00Z")', [0, 3]),
        ('sent == time("2020-01-02T05:00+01:00")', [0]),
        ('at >= time("2020-01-01") and zoned >= time("2019-12-31T19:00-05:00")', [1]),
        ('time(epoch, "epoch_s") > time("2019")', [1]),
        ('time(us, "%m/%d/%Y") < day', [3]),
        ("at is None", [2]),
        (" cash\n", [0, 2]),
        ("True", [0, 1, 2, 3]),
    ],
)
def test_rows_that_pass(text: str, rows: list[int]) -> None:
    kept = passes(BATCH, text).to_pylist()
    assert [row for row, passed in enumerate(kept) if passed] == rows
    assert None not in kept


def test_a_batch_without_rows() -> None:
    assert len(passes(BATCH.slice(0, 0), "fare > 0")) == 0


def test_a_function_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import pyarrow.compute as pc\ndef keep(b):\n    return pc.greater(b['fare'], 1)\n"
    )
    assert passes(BATCH, f"{tmp_path}/mine.py:keep").to_pylist() == [True, False, False, True]


@pytest.mark.parametrize("answer", ["[True] * len(b)", "[b['fare'][0].is_valid] * len(b)", "[1 / len(b) > 0] * len(b)"])
def test_a_function_is_not_asked_about_no_rows(answer: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"def keep(b):\n    return {answer}\n")
    kept = passes(BATCH.slice(0, 0), f"{tmp_path}/mine.py:keep")
    assert (len(kept), kept.type) == (0, pa.bool_())
    assert passes(BATCH, f"{tmp_path}/mine.py:keep").to_pylist() == [True] * 4
    with pytest.raises(InfeedError, match="there is no file"):
        passes(BATCH.slice(0, 0), f"{tmp_path}/other.py:keep")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fare >", "cannot parse the filter"),
        ("__import__('os').system('ls')", "cannot parse the filter: `__import__"),
        ("fare + 1 > 2", r"cannot parse the filter: `fare \+ 1`"),
        ("nobody > 1", r"(?s)no column 'nobody'.*use one of fare, company"),
        ("fare in [1, 'x']", "(?s)cannot parse the filter: .*'x'"),
        ("day > time('soon')", "`soon` is not a time"),
        ("fare", "4 values of type double for 4 rows"),
    ],
)
def test_a_filter_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        passes(BATCH, text)


@pytest.mark.parametrize("returned", ["True", "None", "[{}, 'a']", "object()", "[1] * len(batch)"])
def test_a_function_that_does_not_answer_for_each_row_is_an_error(returned: str, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(f"def wanted(batch):\n    return {returned}\n")
    with pytest.raises(InfeedError) as raised:
        passes(BATCH, f"{path}:wanted")
    assert raised.value.where == f"filter '{path}:wanted'"


@pytest.mark.parametrize("depth", [101, 3_000, 100_000])
def test_a_filter_that_is_nested_too_deep_is_an_error(depth: int) -> None:
    with pytest.raises(InfeedError, match="cannot parse the filter") as raised:
        parse("not " * depth + "a")
    assert len(raised.value.where) < 300


def test_many_conditions_side_by_side_are_no_nesting() -> None:
    assert parse(" and ".join(f"a != {number}" for number in range(500))) is not None
