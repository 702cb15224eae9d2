"""A row is read alike whatever rows are beside it, and its other columns as they are written."""

from __future__ import annotations

import csv
import datetime
import json
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.pipelines.predict.inputs import open_tables, rows
from infeed.pipelines.predict.tables import open_as_trained


def spec(*, is_floating: bool = False, is_integer: bool = False) -> Any:
    dtype = SimpleNamespace(is_floating=is_floating, is_integer=is_integer)
    return SimpleNamespace(dtype=dtype, shape=SimpleNamespace(rank=1))


SPECS = {"n": spec(is_integer=True), "x": spec(is_floating=True), "word": spec()}
NAMES = [*SPECS, "key"]
CELLS = ["", "01234", "1.50", "1e5", "NaN", "12_34", "+49", "9007199254740993", "NA", "true", "a b", "é", '"', "0x1F"]
Outcome = tuple[str, str]  # cells or the error; and the columns to write


def outcomes(path: Path, trained: Mapping[str, Any] = MappingProxyType({}), **given: Any) -> list[Outcome]:
    """Outcome of each row: what the model is given or the error, and what is written beside the prediction."""
    found: list[Outcome] = []
    for batch in rows(open_tables([str(path)], SPECS, given, trained), SPECS):
        assert batch.rows is not None
        cells = iter(zip(*(batch.cells[name] for name in SPECS), strict=True))
        written = iter(batch.rows.to_pylist())
        for place in range(len(batch.names)):
            fitting = batch.wrong[place].partition(": ")[2] if place in batch.wrong else repr(next(cells))
            there = {} if place in batch.unread else next(written)
            found.append((fitting, repr({name: there[name] for name in NAMES if there.get(name) is not None})))
    return found


def write_csv(path: Path, table: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, *table])


def write_jsonl(path: Path, table: Sequence[Sequence[Any]]) -> None:
    path.write_text("".join(f"{json.dumps(dict(zip(NAMES, row, strict=False)))}\n" for row in table))


def write_sparse(path: Path, table: Sequence[Sequence[Any]]) -> None:
    """Write JSON Lines that lack the names of nulls."""
    rows_there = [{name: one for name, one in zip(NAMES, row, strict=False) if one is not None} for row in table]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows_there))


_TEXT = st.sampled_from(CELLS)
_ROWS = st.lists(st.lists(_TEXT, min_size=4, max_size=4) | st.just(["1", "2"]), min_size=1, max_size=8)
_VALUE = _TEXT | st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, width=32)
_VALUE |= st.lists(_TEXT | st.integers(0, 9), max_size=2)
_OBJECTS = st.lists(st.lists(_VALUE, min_size=4, max_size=4), min_size=1, max_size=8)
_OPTIONS = st.sampled_from([{}, {"nulls": ["", "NA"]}, {"decimal": ",", "thousands": "."}, {"numbers": {"x": "$1.5"}}])


def check_each(name: str, write: Any, table: list[Any], order: list[int], trained: Mapping[str, Any]) -> None:
    """One row at a time and any other order give each row what the whole file gives it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write(path, table)
        whole = outcomes(path, trained)
        assert len(whole) == len(table)
        for number, row in enumerate(table):
            write(path, [row])
            assert outcomes(path, trained) == [whole[number]]
        write(path, [table[number] for number in order])
        assert outcomes(path, trained) == [whole[number] for number in order]


@settings(deadline=None)
@given(_ROWS, _OPTIONS, st.data())
def test_a_row_of_a_csv_is_read_alike_alone(table: list[Any], options: Any, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.sampled_from(range(len(table))), min_size=1, unique=True))
    check_each("t.csv", write_csv, table, order, {"csv": options})


@settings(deadline=None)
@given(_OBJECTS, st.data())
def test_a_row_of_json_lines_is_read_alike_alone(table: list[Any], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.sampled_from(range(len(table))), min_size=1, unique=True))
    check_each("t.jsonl", write_jsonl, table, order, {})


@settings(deadline=None)
@given(_OBJECTS, st.data())
def test_a_name_that_a_row_of_json_lines_lacks_is_null_also_alone(table: list[Any], data: st.DataObject) -> None:
    table = [["1", *row[1:]] for row in table]
    order = data.draw(st.lists(st.sampled_from(range(len(table))), min_size=1, unique=True))
    check_each("t.jsonl", write_sparse, table, order, {})
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for write in (write_jsonl, write_sparse):
            write(path := Path(folder, "t.jsonl"), table)
            found.append(outcomes(path))
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("row", "missing"),
    [
        ({"x1": 1}, []),  # another needed column is no other spelling
        ({"x1": 1, "humidty": 2}, ["humidity"]),
        ({"other": 1}, ["humidity", "x1", "x2"]),
    ],
)
def test_json_lines_may_lack_columns_that_are_not_there_under_another_name(
    tmp_path: Path, row: dict[str, int], missing: list[str]
) -> None:
    (path := tmp_path / "t.jsonl").write_text(json.dumps(row))
    table = open_as_trained(str(path), {}, {}, needed := ["humidity", "x1", "x2"])
    if missing:
        with pytest.raises(InfeedError, match=", ".join(map(repr, missing))) as raised:
            table.check_columns(needed)
        assert [name for name in needed if repr(name) in raised.value.what] == missing
    else:
        table.check_columns(needed)


def test_words_stay_words_in_a_file_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for word in ("01234", "1.50", "1e5", "NaN", "94107"):
        write_csv(path, [["1", "2", word, "00042"]])
        assert outcomes(path) == [
            (f"(1, 2.0, {word!r})", repr(dict(zip(NAMES, ["1", "2", word, "00042"], strict=True))))
        ]


@pytest.mark.parametrize(("name", "write"), [("t.parquet", pq.write_table), ("t.feather", feather.write_feather)])
def test_typed_files_keep_their_types_and_no_number_becomes_a_word_in_silence(
    tmp_path: Path, name: str, write: Any
) -> None:
    table = pa.table({"n": [1, None], "x": [0.5, None], "word": [1234, 99], "key": [datetime.date(2024, 1, 1)] * 2})
    write(table, str(tmp_path / name))
    [table_there] = open_tables([str(tmp_path / name)], SPECS, {})
    [batch] = rows([table_there], SPECS)
    assert batch.cells["word"] == ["1234", "99"]
    assert sorted(batch.notes) == [0, 1]
    assert batch.rows is not None
    assert batch.rows.schema.field("key").type == pa.date32()


def test_a_key_that_is_spelled_like_a_missing_value_is_kept(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", [["1", "2", "NA", "NA"]])
    [(cells, written)] = outcomes(tmp_path / "t.csv", {"csv": {"nulls": ["", "NA"]}})
    assert cells == "(1, 2.0, '')"
    assert "'key': 'NA'" in written


def test_a_file_with_another_delimiter_keeps_what_training_says_about_cells(tmp_path: Path) -> None:
    trained = {"csv": {"delimiter": ";", "nulls": ["", "NA"], "decimal": ","}}
    write_csv(tmp_path / "t.csv", [["1", "2,5", "NA", ""]])
    assert outcomes(tmp_path / "t.csv", trained)[0][0] == "(1, 2.5, '')"


@pytest.mark.parametrize("file", ["t.csv", "t.jsonl"])
def test_a_file_of_bad_rows_alone_reports_each(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("n,x,word,key\n1,2\n1\n" if file == "t.csv" else '{"n": \n[]\n')
    if file == "t.csv":
        assert [cells.partition(",")[0] for cells, _ in outcomes(tmp_path / file)] == ["2 cells", "1 cell"]
    else:
        with pytest.raises(InfeedError, match="'n', 'word', 'x'"):
            outcomes(tmp_path / file)


def test_bad_rows_keep_their_numbers_beside_cells_with_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('n,x,word,key\n1,2,"a\nb\nc",k\n\n1,2\n3,4,d,k\n')
    [batch] = rows(open_tables([str(tmp_path / "t.csv")], SPECS, {}), SPECS)
    assert list(batch.wrong) == [1]
    assert batch.wrong[1].startswith("line 6: ")
    assert batch.cells["word"] == ["a\nb\nc", "d"]


def test_fields_of_an_object_that_is_null_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    needed = {"a.n": SPECS["n"]}
    for text, expected in [('{"a": null}', [None]), ('{"a": {"n": 1}}', [1]), ('{"a": "text"}', [])]:
        path.write_text(text)
        [batch] = rows(open_tables([str(path)], needed, {}), needed)
        assert batch.cells["a.n"] == expected


def test_only_the_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    table = open_as_trained(str(tmp_path / "t.csv"), {}, {}, [])
    table.check_columns(["b", "a"])
    with pytest.raises(InfeedError, match="columns 'c', 'd'") as raised:
        table.check_columns(["a", "c", "d"])
    assert raised.value.where.endswith("t.csv")
    assert "'a'" not in str(raised.value)


def test_a_near_name_is_suggested_also_in_another_unicode_form(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "température") for form in ("NFC", "NFD"))
    (tmp_path / "t.csv").write_text(f"{decomposed},humidty\n1,2\n", encoding="utf-8")
    table = open_as_trained(str(tmp_path / "t.csv"), {}, {}, [])
    with pytest.raises(InfeedError, match="'humidity'") as raised:
        table.check_columns([composed, "humidity"])
    assert "NFC" in raised.value.do
    assert "'humidty'" in raised.value.do


def test_a_name_that_differs_in_case_or_spaces_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("City ,n\n1,2\n")
    with pytest.raises(InfeedError, match="'city'") as raised:
        open_as_trained(str(tmp_path / "t.csv"), {}, {}, []).check_columns(["city"])
    assert "'City '" in raised.value.do


def test_formats_for_unknown_columns_are_refused_if_the_user_gives_them(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", [["1", "2", "a", ""]])
    with pytest.raises(InfeedError, match="'prize'"):
        outcomes(tmp_path / "t.csv", numbers={"prize": "$1.5"})
    assert outcomes(tmp_path / "t.csv", {"csv": {"numbers": {"prize": "$1.5"}}})
