from __future__ import annotations

import datetime
import itertools
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.row_filter import parse, passes
from infeed.components.example_gen.sources.kinds import read_numbers

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


MISFITS = pa.RecordBatch.from_pydict(
    {
        "fare": [1.5, 0.0, None, 9.0],
        "company": ["A", "B", "C", None],
        "cash": [True, False, True, False],
        "day": [datetime.date(2020, 1, day) for day in (1, 2, 3, 4)],
        "us": ["01/01/2020", "1/2/2020", None, "12/31/2019"],
        "iso": ["2020-01-01", "2020-12-31 05:00", None, "2019-01-01T09:00:00Z"],
        "offsets": ["2019-01-01", None, "2020-01-01T00:00+02:00", "x"],
        "at": pa.array([0, 1_577_836_800_000, None, 1], pa.timestamp("ms")),
        "zoned": pa.array([0, 1_577_836_800, None, 1], pa.timestamp("s", "America/New_York")),
    }
)


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("compani == 'A'", "'compani'; did you mean 'company'?", "fare, company"),
        ("company > 1", "'company' has the type string, with values such as A", 'company > "1"'),
        ("fare > '1.5'", "'1.5' is not a number, but column 'fare' has the type double", "fare > 1.5"),
        ("'cheap' < fare", "'cheap' is not a number", "fare > 1.5"),
        ("fare in ['cheap']", "'cheap' is not a number", "fare in [1.5]"),
        ("day not in ['soon']", "'soon' is not a time", 'day != time("2020-01-01")'),
        ("cash == 'yes'", "'yes' is not a boolean", "cash == True"),
        ("day >= '2020-06-01'", "date32[day], with values such as 2020-01-01", 'day >= time("2020-06-01")'),
        ("at >= '2020-06-01 12:00'", "timestamp[ms]", 'at >= time("2020-06-01T12:00:00")'),
        ("zoned >= '2020-06-01'", "America/New_York", 'zoned >= time("2020-06-01T00:00:00Z")'),
        ("zoned >= time('2020-06-01')", "an offset from UTC, but '2020-06-01' has no", "2020-06-01T00:00:00Z"),
        ("at >= time('2020-06-01T02:00+01:00')", "no offset from UTC", "2020-06-01T01:00:00"),
        ("us >= time('2020-06-01')", "'01/01/2020' is not an ISO 8601 time", "time(us, '%m/%d/%Y')"),
        ("fare >= time('2020-06-01')", "'fare' is compared with a time, but has the type double", "epoch_s"),
        ("fare >= time('2020-06-01', '%Q')", "'%Q'", "%Y"),
        ("us >= '2020-06-01'", "'01/01/2020' is not ordered like times", "time(us, '%m/%d/%Y') >= time('2020-06-01')"),
        ("'6/30/2020' > iso", "'2020-01-01'", "time(iso) < time('6/30/2020', '%m/%d/%Y')"),
        ("offsets < '2020-01-01'", "'2020-01-01T00:00+02:00'", "time(offsets) < time('2020-01-01')"),
        ("COMPANY == 'A'", "'COMPANY'; did you mean 'company'?", "fare, company"),
        ("company = 'A = B'", "cannot parse the filter", "write company == 'A = B'"),
        ("fare > 0 AND company <> 'A' && cash = true", "cannot parse", "fare > 0 and company != 'A' and cash == True"),
        ("company IS NOT NULL", "cannot parse", "write company is not None"),
        ("(fare > 0) & (fare < 5)", "cannot parse", "write (fare > 0) and (fare < 5)"),
    ],
)
def test_a_filter_of_another_type_names_one_that_fits(text: str, what: str, fix: str) -> None:
    with pytest.raises(InfeedError) as raised:
        passes(MISFITS, text)
    assert raised.value.where == ("the format of a date" if "%Q" in text else f"filter {text!r}")
    assert what in raised.value.what
    assert fix in raised.value.do


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("iso >= '2020-01-01'", [True, True, False, False]),
        ("time(iso) >= '2020-12-31 05:00'", [False, True, False, False]),
        ("time(us, '%m/%d/%Y') < '2020-01-02'", [True, False, False, True]),
        ("us == '1/2/2020'", [False, True, False, False]),
        ("company >= '2020'", [True, True, True, False]),
    ],
)
def test_text_is_compared_with_a_date_where_letters_or_times_tell_the_order(text: str, kept: list[bool]) -> None:
    batch = MISFITS.slice(0, 3) if text.startswith("time(iso)") else MISFITS  # times with and without offset do not mix
    assert passes(batch, text).to_pylist() == kept[: len(batch)]


US, SHORT, WORDS = ["12/01/2020", "02/27/2021"], ["02/01/21", "03/27/21"], ["x", "y"]


@pytest.mark.parametrize(
    ("left", "right", "forms"),
    [
        (US, ["03/04/2021", "01/02/2020"], [("%m/%d/%Y", "%m/%d/%Y")]),
        (["01/02/2020", None], US, [("%m/%d/%Y", "%m/%d/%Y")]),
        (["01/02/2020"], ["02/03/2020"], [("%d/%m/%Y", "%d/%m/%Y"), ("%m/%d/%Y", "%m/%d/%Y")]),
        (US, SHORT, [("%m/%d/%Y", "%m/%d/%y")]),
        (["2020-01-01", "2021-01-01"], US, [("", "%m/%d/%Y")]),
        (["2020-01-01", "2020-01-01T02:00+01:00"], ["2020-01-01"], [("", "")]),
        (US, WORDS, [("%m/%d/%Y", "%m/%d/%Y")]),
    ],
)
@pytest.mark.parametrize(("op", "mirrored"), [("<", ">"), (">=", "<=")])
def test_columns_of_times_that_letters_do_not_order_are_compared_as_times(
    left: list[str | None], right: list[str | None], forms: list[tuple[str, str]], op: str, mirrored: str
) -> None:
    rows = pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in itertools.zip_longest(left, right)])
    as_time = ["" if not form else f", {form!r}" for pair in forms for form in pair]
    pairs = list(zip(as_time[::2], as_time[1::2], strict=True))
    for text, ways in (
        (f"a {op} b", [f"time(a{one}) {op} time(b{two})" for one, two in pairs]),
        (f"b {mirrored} a", [f"time(b{two}) {mirrored} time(a{one})" for one, two in pairs]),
    ):
        with pytest.raises(InfeedError) as raised:
            passes(rows, text)
        assert sorted(raised.value.do.partition("such as ")[2].split(" or ")) == sorted(ways)
    assert len(passes(rows, "a == b")) == len(rows)


def test_columns_that_letters_order_are_compared_by_letters() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["2020-01-01", None, "2019"], "b": ["2020-01-02", "2020", "2018"]})
    assert passes(rows, "a < b").to_pylist() == [True, False, False]


@pytest.mark.parametrize(
    ("values", "limit", "ways"),
    [
        (["02/27/2020", "01/01/2021"], "03/04/2021", ["%m/%d/%Y"]),
        (["01/02/2020"], "03/04/2021", ["%d/%m/%Y", "%m/%d/%Y"]),
        (["01/02/2020"], "03/14/2021", ["%m/%d/%Y"]),
        (["31/12/20", "01/01/21"], "01/01/21", ["%d/%m/%y"]),
        (["31.12.20", "01.01.21"], "01.01.21", ["%d.%m.%y"]),
    ],
)
def test_one_format_serves_the_column_and_the_limit(values: list[str], limit: str, ways: list[str]) -> None:
    with pytest.raises(InfeedError) as raised:
        passes(pa.RecordBatch.from_pydict({"a": values}), f"a > {limit!r}")
    fits = [f"time(a, {form!r}) > time({limit!r}, {form!r})" for form in ways]
    assert raised.value.do.partition("such as ")[2].split(" or ") == fits


@pytest.mark.parametrize("op", ["<", ">="])
@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["1,234", "999"], [1234, 999]),
        (["$1,234", "$5"], [1234, 5]),
        (["1.234,5", "12"], [1234.5, 12]),
        (["1.234.567"], [1_234_567]),
        (["45%", None, "5 %"], [45, None, 5]),
        (["01234", "7"], [1234, 7]),
        (["-1 234.50"], [-1234.5]),
    ],
)
def test_text_of_numbers_is_not_ordered_by_a_quoted_number(
    values: list[str | None], numbers: list[float | None], op: str
) -> None:
    rows = pa.RecordBatch.from_pydict({"amt": values})
    with pytest.raises(InfeedError) as raised:
        passes(rows, f"amt {op} 100")
    found = re.fullmatch(r".* --set 'numbers=(\{.*\})'", raised.value.do)
    assert found
    read, unfit = read_numbers(rows, json.loads(found[1]))
    assert (read.column(0).to_pylist(), unfit) == (numbers, {})


def test_without_rows_the_type_alone_is_named() -> None:
    with pytest.raises(InfeedError, match="double") as raised:
        passes(MISFITS.slice(0, 0), "fare > 'cheap'")
    assert "such as" not in raised.value.what
    assert "fare > 0" in raised.value.do
