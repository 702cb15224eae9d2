"""Values of JSON Lines stay as they are written, and columns are named as ingest names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRow
from infeed.components.example_gen.sources.jsonl import JsonlOptions, JsonNumber, as_json, open_jsonl, read_rows


def rows_of(folder: Path, text: str, *, flatten: bool = False) -> list[Any]:
    (folder / "t.jsonl").write_text(text)
    blocks = read_rows(str(folder / "t.jsonl"), JsonlOptions(flatten=flatten), IngestOptions())
    return [row for block in blocks for row in block]


@pytest.mark.parametrize(
    "value",
    ["1.10", "9007199254740993123", "1e400", "-0", "NaN", '"00042"', "true", "null", '[1.0, {"a": [2.50, "é"]}]'],
)
def test_values_are_written_as_they_were_read(tmp_path: Path, value: str) -> None:
    [row] = rows_of(tmp_path, f'{{"a": {value}}}')
    assert as_json(row["a"]) == value


def test_a_number_is_no_text(tmp_path: Path) -> None:
    [row] = rows_of(tmp_path, '{"a": 1, "b": "1"}')
    assert [type(value) for value in row.values()] == [JsonNumber, str]


@pytest.mark.parametrize("flatten", [False, True])
def test_columns_are_those_of_ingest(tmp_path: Path, flatten: bool) -> None:
    text = '{"a": {"b": 1, "c": {"d": "x"}}, "l": [1, 2], "o": [{"p": 1, "q": ["a"]}, {"p": null, "q": ["b", "c"]}]}\n'
    text += '{"n": [[1, 2], [3]], "a": {"b": 2}}\n'
    first, second = rows_of(tmp_path, text, flatten=flatten)
    opened = open_jsonl(str(tmp_path), {None: "t.jsonl"}, IngestOptions(), JsonlOptions(flatten=flatten))
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
    first, bad, last = rows_of(tmp_path, f'{{"a": 1}}\n\n{line}\n{{"a": 2}}\n')
    assert [first, last] == [{"a": "1"}, {"a": "2"}]
    assert isinstance(bad, BadRow)
    assert bad.line == 3
    assert reason in bad.reason
