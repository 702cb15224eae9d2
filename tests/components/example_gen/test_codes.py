from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.example_gen.codes import Codes, add_codes, find_codes, note_on, note_on_words
from infeed.components.example_gen.local import ingest

CELLS = st.lists(st.one_of(st.none(), st.text(st.sampled_from("01+-_. e"), max_size=5)), max_size=20)


@given(cells=CELLS, start=st.integers(0, 3))
def test_codes_are_cells_with_leading_zeros_plus_or_underscores(cells: list[str | None], start: int) -> None:
    shown = [cell.strip(" ") for cell in cells[start:] if cell is not None]
    zeros = [cell for cell in shown if re.match("[+-]?0[0-9]", cell)]
    codes = [cell for cell in shown if re.match(r"[+-]?0[0-9]|\+", cell) or "_" in cell]
    found = find_codes(pa.array(cells, pa.string())[start:])
    assert (found.cells, found.zeros, found.example.strip(" ")) == (len(codes), len(zeros), codes[0] if codes else "")


@pytest.mark.parametrize("cell", ["0", "-0", "0.5", "-0.25", "10", "1e05", "1e+05", "", "1-0", ".05"])
def test_numbers_that_keep_their_text_are_no_codes(cell: str) -> None:
    assert find_codes(pa.array([cell, cell])) == Codes()


@pytest.mark.parametrize(
    ("cells", "codes"),
    [
        (["1207", "12E3", " 4e21", "9911", None, "7310"] * 60, 120),
        (["120", "999"] * 100 + ["1e5"], 1),
        (["1e5", "2e5", "120"] * 60, 0),  # numbers as people write them
        (["1", "10", "100", "1000", "10000", "1e5"] * 60, 0),
        (["1.5e3", "1200.", "1e+05", "12000"] * 60, 0),
        (["1207"] * 50 + ["0.25"] * 50 + ["12E3"], 0),
        (["1e", "e5", "nan"], 0),
    ],
)
def test_exponents_among_integers_of_one_width_are_codes(cells: list[str | None], codes: int) -> None:
    assert find_codes(pa.array(cells)).cells == codes
    assert find_codes(pa.array(["12E3", *cells])[1:]).cells == codes


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=30), st.sampled_from(["r", "e", "g", ".3e", ".0e"]))
def test_numbers_that_programs_write_have_no_codes(values: list[float], form: str) -> None:
    texts = [repr(one) if form == "r" else format(one, form) for one in values]
    assert find_codes(pa.array(texts)) == Codes()


@pytest.mark.parametrize("column", [pa.array([], pa.string()), pa.nulls(3, pa.string())])
def test_columns_without_cells(column: pa.StringArray) -> None:
    assert find_codes(column) == Codes()


def test_the_notes_name_five_columns_and_a_flag_that_can_be_typed() -> None:
    codes = {f"it's {number}": Codes(2, 1, "07") for number in range(7)}
    for note, kind in ((note_on(codes), "bytes"), (note_on_words(codes), "int")):
        assert "2 more columns" in note
        [types] = re.findall(r"(--set .*) (?:keeps|reads)", note)
        flag, value = shlex.split(types)
        assert flag == "--set"
        assert json.loads(value.removeprefix("types=")) == dict.fromkeys(list(codes)[:5], kind)
    assert note_on({}) == note_on_words({}) == ""


def test_counts_add_up() -> None:
    added = add_codes([{"a": Codes(2, 1, "01")}, {"a": Codes(1, 1, "02"), "b": Codes(1, 0, "+1")}])
    assert added == {"a": Codes(3, 2, "01"), "b": Codes(1, 0, "+1")}


@pytest.mark.parametrize("workers", [1, 2])
def test_ingest_says_once_which_columns_may_hold_codes(tmp_path: Path, workers: int) -> None:
    rows = "01234,+49,1_0,0.5,007,x\n94107,7,5,1.5,1,y\n" * 200
    (tmp_path / "a.csv").write_text(f"zip,phone,code,x,typed,text\n{rows}")
    (tmp_path / "b.csv").write_text("zip,phone,code,x,typed,text\n00501,1,2,3,4,z\n")
    said = ingest(
        tmp_path, tmp_path / "out", format="csv", workers=workers, source_options={"types": {"typed": "int"}}
    ).warnings
    [note] = [one for one in said if "codes" in one]
    assert "'zip' (201 such as '01234'), 'phone' (200 such as '+49'), 'code' (200 such as '1_0')" in note
    kept = ingest(
        tmp_path,
        tmp_path / "kept",
        format="csv",
        source_options={"types": {"zip": "bytes", "phone": "bytes", "code": "bytes", "typed": "int"}},
    )
    assert not [one for one in kept.warnings if "codes" in one]


@pytest.mark.parametrize(
    ("name", "content", "counts"),
    [
        ("a.csv", "x,f\n9007199254740993,1e400\n12.5,-1e999\n1582218195625938945,inf\n", {"x": 2, "f": 2}),
        ("a.csv", "x\n9007199254740992\n12.5\n1e300\nnan\n-inf\n", {"x": 1}),
        (
            "a.jsonl",
            '{"x": 9007199254740993, "o": {"f": 1e400}, "l": [1, 9007199254740993]}\n'
            '{"x": 1.5, "o": {"f": 1}, "l": [0.5]}\n',
            {"x": 1, "o.f": 1, "l": 1},
        ),
        ("a.jsonl", '{"x": 9007199254740992.0}\n{"x": 1.5}\n', {}),
    ],
)
def test_numbers_that_lose_digits_or_their_size_are_counted(
    tmp_path: Path, name: str, content: str, counts: dict[str, int]
) -> None:
    (tmp_path / name).write_text(content)
    said = ingest(tmp_path / name, tmp_path / "out").warnings
    lost = [re.fullmatch(r"column '(.*)': .* changed by float32: (\d+)", one) for one in said]
    assert {one[1]: int(one[2]) for one in lost if one} == counts
