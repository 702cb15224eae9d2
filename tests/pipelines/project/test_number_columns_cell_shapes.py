"""Shapes of cells are counted exactly, and merge."""

from __future__ import annotations

import pyarrow as pa

from infeed.pipelines.project.number_columns import CellShapes, shapes_of


def shapes(cells: list[str | None]) -> CellShapes:
    return shapes_of(pa.RecordBatch.from_arrays([pa.array(cells, pa.string())], names=["x"]))["x"]


def test_digits_are_counted_by_shape_with_the_first_example() -> None:
    found = shapes(["$3,356.21", "$4,100.00", "0.5", "n/a", None])
    assert found.shapes == {"$9,999.99": (2, "$3,356.21"), "0.9": (1, "0.5")}
    assert found.others == {"n/a": 1}
    assert found.cells == 4


def test_spaces_and_apostrophes_of_all_kinds_are_one() -> None:
    assert list(shapes(["1\u202f234", "1\u00a0234", "1 234"]).shapes) == ["9 999"]
    assert list(shapes(["1\u2019234", "1'234"]).shapes) == ["9'999"]


def test_shapes_add_up() -> None:
    cells = ["1,234", "n/a", "7", "n/a", "0,5", "x"]
    assert shapes(cells[:2]) + shapes(cells[2:4]) + shapes(cells[4:]) == shapes(cells)


def test_a_long_column_of_text_is_given_up() -> None:
    assert shapes([f"{n} green bottles hanging on the wall" for n in range(2_000)]).given_up
    assert (shapes([f"{n} green bottles hanging on the wall" for n in range(2_000)]) + shapes(["1"])).given_up


def test_a_column_of_too_many_shapes_is_given_up() -> None:
    assert shapes([f"{'x' * (n % 8)}{n}{'y' * (n // 8 % 16)}{'z' * (n // 128)}" for n in range(500)]).given_up


def test_columns_of_numbers_have_no_shapes() -> None:
    assert shapes_of(pa.RecordBatch.from_pydict({"n": [1, 2], "x": [0.5, 1.5]})) == {}
