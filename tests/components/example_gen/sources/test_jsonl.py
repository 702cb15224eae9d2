"""JSON Lines as people write them; `kinds` is tried by what rows are read as."""

from __future__ import annotations

import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_sources import batches_of, rows_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource
from infeed.components.example_gen.sources import jsonl
from infeed.components.example_gen.sources.jsonl import JsonlOptions, JsonNumber, as_json, read_rows


def open_jsonl(root: Path, *contents: str | bytes, on_bad_row: Any = "fail", **options_of_jsonl: Any) -> OpenedSource:
    for number, content in enumerate(contents):
        (root / f"{number}.jsonl").write_bytes(content.encode() if isinstance(content, str) else content)
    options = IngestOptions(block_bytes=1024, on_bad_row=on_bad_row)
    return jsonl.open_jsonl(str(root), {None: "*"}, options, JsonlOptions(**options_of_jsonl))


def read(opened: OpenedSource) -> tuple[list[dict[str, Any]], list[BadRow]]:
    bad_rows = BadRows("reject", 1_000)
    return rows_of(opened, bad_rows), list(bad_rows.take())


def rows(root: Path, *contents: str | bytes, **options: Any) -> list[dict[str, Any]]:
    found, bad = read(open_jsonl(root, *contents, **options))
    assert not bad
    return found


def test_values_survive(tmp_path: Path) -> None:
    line = {"i": 0, "big": -(2**63), "f": 0.0, "b": False, "s": "", "n": None, "l": [1, 2], "u": "grün\n"}
    assert rows(tmp_path, json.dumps(line)) == [line]


def test_objects_become_columns_with_dots(tmp_path: Path) -> None:
    opened = open_jsonl(tmp_path, '{"a": {"b": 1, "c": {"d": "x"}}}\n{"a": null}\n{"e": [0.5]}\n')
    assert opened.schema == pa.schema([("a.b", pa.int64()), ("a.c.d", pa.string()), ("e", pa.list_(pa.float64()))])
    assert read(opened)[0] == [
        {"a.b": 1, "a.c.d": "x", "e": None},
        {"a.b": None, "a.c.d": None, "e": None},
        {"a.b": None, "a.c.d": None, "e": [0.5]},
    ]


NESTED = '{"x": 1, "items": [{"sku": "a", "in": {"n": 2}}, {"sku": "b"}], "grid": [[1], [2, 3]]}\n{"x": 2}\n'


def test_lists_of_objects_and_of_lists_are_left_out_with_the_option_that_reads_them(tmp_path: Path) -> None:
    opened = open_jsonl(tmp_path, NESTED)
    assert opened.schema.names == ["x"]
    assert list(opened.left_out) == ["items", "grid"]
    assert all("--set flatten=true" in why for why in opened.left_out.values())
    assert read(opened)[0] == [{"x": 1}, {"x": 2}]


def test_flattened_they_are_lists(tmp_path: Path) -> None:
    found = rows(tmp_path, NESTED, flatten=True)
    assert found[0] == {"x": 1, "items.sku": ["a", "b"], "items.in.n": [2], "grid": [1, 2, 3]}
    assert found[1] == {"x": 2, "items.sku": None, "items.in.n": None, "grid": None}


def test_nothing_but_lists_of_objects_is_an_error_whose_remedy_works(tmp_path: Path) -> None:
    content = '{"items": [{"sku": "a"}]}\n'
    with pytest.raises(InfeedError, match=r"column 'items'(.|\n)*--set flatten=true"):
        open_jsonl(tmp_path, content)
    assert rows(tmp_path, content, flatten=True) == [{"items.sku": ["a"]}]


def test_types_are_found_over_the_whole_input(tmp_path: Path) -> None:
    first = '{"x": 1, "y": null, "z": []}\n' * 500
    opened = open_jsonl(tmp_path, first, '{"x": 0.5}\n{"y": true, "z": ["a"]}\n')
    assert opened.schema.types == [pa.float64(), pa.bool_(), pa.list_(pa.string())]
    assert len(read(opened)[0]) == 502


def test_text_that_looks_like_a_date_stays_text(tmp_path: Path) -> None:
    dates = [{"d": "2020-01-01"}, {"d": "2020-01-01 00:00:00"}]
    assert rows(tmp_path, "\n".join(json.dumps(row) for row in dates)) == dates


def test_numbers_that_arrow_refuses(tmp_path: Path) -> None:
    found = rows(tmp_path, '{"f": 1e30}\n{"f": 1e400}\n{"f": NaN}\n{"f": 9007199254740993}\n')
    assert [row["f"] for row in found[:2]] == [1e30, sys.float_info.max]
    assert math.isnan(found[2]["f"])


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}\n{"a": 2}',
        b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n',
        gzip.compress(b'{"a": 1}\n{"a": 2}\n'),
        pa.compress(b'{"a": 1}\n{"a": 2}\n', "zstd", asbytes=True),
    ],
)
def test_the_same_rows_written_in_other_ways(tmp_path: Path, content: bytes) -> None:
    assert rows(tmp_path, content) == [{"a": 1}, {"a": 2}]


def test_another_encoding(tmp_path: Path) -> None:
    assert rows(tmp_path, '{"a": "ü"}\n'.encode("utf-16"), encoding="utf-16") == [{"a": "ü"}]


def nested(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels


BAD_LINES = [
    ('{"a": "x"}', "a", "text, but earlier rows have a number"),
    ('{"a": [1]}', "a", "a list, but earlier rows have a number"),
    ('{"a": true}', "a", "true or false, but earlier rows have a number"),
    ('{"a": 18446744073709551616}', "a", "18446744073709551616 does not fit into a signed 64-bit integer"),
    ('{"s": {"t": 1}}', "s.t", "a number, but earlier rows have text"),
    ('{"l": [1, null]}', "l", "a list contains null"),
    ('{"l": [1, "x"]}', "l", "text, but earlier rows have a number"),
    ('{"a": 1, "a": 2}', "a", "the name occurs twice"),
    ("[1]", None, "not a JSON object"),
    ('{"a": 1} {"a": 2}', None, "not JSON: Extra data at character 10"),
    ('{"a": 1', None, "not JSON: Expecting ',' delimiter at character 8"),
    ('{"a": "\xff"}', None, "not UTF-8 text"),
    ("null", None, "not a JSON object"),
    ('{"a": 1}{"a": 2}', None, "not JSON: Extra data at character 9"),
    (nested(101), None, "nested deeper than 100 levels"),
    (nested(10_000), None, "nested deeper than 100 levels"),
    ('{"]": ' * 101 + "1" + "}" * 101, None, "nested deeper than 100 levels"),
    ('{"a": [' + "[" * 10_000, None, "nested deeper than 100 levels"),
    ('{"a": ' + "9" * 5_000 + "}", None, "a number has too many digits"),
    ('{"a": ' + "9" * 400 + "}", "a", f"{'9' * 40}... of 400 digits does not fit into a signed 64-bit integer"),
    (r'{"s": {"t": "\ud83d"}}', None, "invalid Unicode: half of a surrogate pair"),
]


@pytest.mark.parametrize(("line", "column", "reason"), BAD_LINES)
def test_a_bad_line_is_named_or_set_aside(tmp_path: Path, line: str, column: str | None, reason: str) -> None:
    good = ['{"a": 1, "s": {"t": "x"}, "l": [1]}'] * 200
    content = "\n".join([*good, line, *good]).encode("latin-1")
    found, bad = read(open_jsonl(tmp_path, content, on_bad_row="reject"))
    assert found == [{"a": 1, "s.t": "x", "l": [1]}] * 400
    assert [(row.line, row.column, row.reason) for row in bad] == [(201, column, reason)]
    with pytest.raises(InfeedError, match=r"0\.jsonl, line 201"):
        open_jsonl(tmp_path, content)


@pytest.mark.parametrize(
    ("line", "reason"), [("null", "not a JSON object"), (nested(10_000), "nested deeper than 100")]
)
def test_a_first_line_that_ends_arrow_is_a_bad_row(tmp_path: Path, line: str, reason: str) -> None:
    found, bad = read(open_jsonl(tmp_path, f'{line}\n{{"a": 1}}\n', on_bad_row="reject"))
    assert (found, [row.line for row in bad]) == ([{"a": 1}], [1])
    assert bad[0].reason.startswith(reason)


def test_as_many_levels_as_are_allowed(tmp_path: Path) -> None:
    assert rows(tmp_path, nested(100)) == [{".".join("a" * 100): 1}]


def test_brackets_within_text_are_no_levels(tmp_path: Path) -> None:
    table = [{"a": r"\"[" + "[{" * 200}, {"a": "]" * 200 + "\\"}]
    assert rows(tmp_path, "\n".join(json.dumps(row) for row in table)) == table


def test_a_blank_line_is_no_row_and_hides_none(tmp_path: Path) -> None:
    content = '{"a": 1}{"a": 2}\n\n{"a": 3}\n  \n{"a": 4}\n\n\n'
    found, bad = read(open_jsonl(tmp_path, content, on_bad_row="reject"))
    assert found == [{"a": 3}, {"a": 4}]
    assert [row.line for row in bad] == [1]


def test_one_odd_line_leaves_the_other_lines_of_its_block_to_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = []
    parse_line = jsonl.parse_line
    monkeypatch.setattr(jsonl, "parse_line", lambda line, mb: one_by_one.append(line) or parse_line(line, mb))
    monkeypatch.setattr(jsonl, "_SMALL_BYTES", 1 << 10)
    lines = ['{"a": 1}'] * 5_000 + ['{"a": "x"}'] + ['{"a": 1}'] * 5_000
    (tmp_path / "0.jsonl").write_text("\n".join(lines))
    opened = jsonl.open_jsonl(str(tmp_path), {None: "*"}, IngestOptions(on_bad_row="reject"), JsonlOptions())
    found, bad = read(opened)
    assert (len(found), [row.line for row in bad]) == (10_000, [5_001])
    assert 0 < len(one_by_one) < 500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no row has values"),
        (b"{}\n{}\n", "no row has values"),
        (b'{"a": [{"b": 1}]}', "column 'a'"),
        (b'{"a": [[1]]}', "no usable column: its rows hold lists of lists"),
        (b'{"a.b": 1, "a": {"b": 2}}', "'a.b' occurs twice"),
        (gzip.compress(b'{"a": 1}\n' * 100)[:-8], "cannot decompress"),
    ],
)
def test_files_that_make_no_table(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        open_jsonl(tmp_path, content)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=40, deadline=None)
@given(table=st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=8))
def test_a_block_at_once_is_what_line_by_line_is(
    tmp_path_factory: pytest.TempPathFactory, table: list[dict[str, Any]]
) -> None:
    content = "".join(json.dumps(row) + "\n" for row in [{"start": 1}, *table])
    fast = read_or_error(tmp_path_factory.mktemp("fast"), content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_parse", lambda block, schema: None)
        slow = read_or_error(tmp_path_factory.mktemp("slow"), content)
    assert fast == slow


def read_or_error(root: Path, content: str) -> Any:
    try:
        found, bad = read(open_jsonl(root, content, on_bad_row="reject"))
    except InfeedError as error:  # lists of objects, or of lists
        return error.what
    return sorted(map(repr, found)), [(row.line, row.column) for row in bad]


@pytest.mark.parametrize(("value", "limit"), [("[]", 8_192), ("{}", 8_192), ("1", 16_384), ("[null]", 8_192)])
def test_a_row_of_too_many_values_is_a_bad_row_before_it_is_parsed(tmp_path: Path, value: str, limit: int) -> None:
    text = '"' + "[{," * 20_000 + '"'
    rows_of = [f'{{"n": {count}, "skipped": [{",".join([value] * count)}]}}' for count in (limit - 2, limit + 2)]
    content = "\n".join([*rows_of[value == "[null]" :], f'{{"n": 0, "t": {text}}}'])
    (tmp_path / "a.jsonl").write_text(content)
    opened = jsonl.open_jsonl(
        str(tmp_path), {None: "*"}, IngestOptions(on_bad_row="reject", max_row_mb=1), JsonlOptions()
    )
    bad_rows = BadRows("reject", 5)
    found = [n for batch in batches_of(opened, bad_rows) for n in batch["n"].to_pylist()]
    assert found == ([0] if value == "[null]" else [limit - 2, 0])
    [bad] = bad_rows.take()
    assert f'"n": {limit + 2}' in bad.text
    assert "max_row_mb, which is 1" in bad.reason
    assert "--max-row-mb" in bad.remedy


def as_written(folder: Path, text: str, *, flatten: bool = False) -> list[Any]:
    (folder / "t.jsonl").write_text(text)
    blocks = read_rows(str(folder / "t.jsonl"), JsonlOptions(flatten=flatten), IngestOptions())
    return [row for block in blocks for row in block]


@pytest.mark.parametrize(
    "value",
    ["1.10", "9007199254740993123", "1e400", "-0", "NaN", '"00042"', "true", "null", '[1.0, {"a": [2.50, "é"]}]'],
)
def test_values_are_written_as_they_were_read(tmp_path: Path, value: str) -> None:
    [row] = as_written(tmp_path, f'{{"a": {value}}}')
    assert as_json(row["a"]) == value


def test_a_number_is_no_text(tmp_path: Path) -> None:
    [row] = as_written(tmp_path, '{"a": 1, "b": "1"}')
    assert [type(value) for value in row.values()] == [JsonNumber, str]


@pytest.mark.parametrize("flatten", [False, True])
def test_columns_are_those_of_ingest(tmp_path: Path, flatten: bool) -> None:
    text = '{"a": {"b": 1, "c": {"d": "x"}}, "l": [1, 2], "o": [{"p": 1, "q": ["a"]}, {"p": null, "q": ["b", "c"]}]}\n'
    text += '{"n": [[1, 2], [3]], "a": {"b": 2}}\n'
    first, second = as_written(tmp_path, text, flatten=flatten)
    opened = jsonl.open_jsonl(str(tmp_path), {None: "t.jsonl"}, IngestOptions(), JsonlOptions(flatten=flatten))
    assert [name for name in {**first, **second} if name not in opened.left_out] == opened.schema.names
    if flatten:
        there = {name: json.loads(as_json(value)) for name, value in {**first, "n": second["n"]}.items()}
        assert there == {
            "a.b": 1, "a.c.d": "x", "l": [1, 2], "o.p": [1], "o.q": ["a", "b", "c"], "n": [1, 2, 3],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "not a JSON object"),
        ('{"a": 1', "not JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a.b": 1, "a": {"b": 2}}', "twice"),
    ],
)
def test_a_line_that_is_no_row_is_a_bad_row_among_the_others(tmp_path: Path, line: str, reason: str) -> None:
    first, bad, last = as_written(tmp_path, f'{{"a": 1}}\n\n{line}\n{{"a": 2}}\n')
    assert [first, last] == [{"a": "1"}, {"a": "2"}]
    assert isinstance(bad, BadRow)
    assert bad.line == 3
    assert reason in bad.reason
