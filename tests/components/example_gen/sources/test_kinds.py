from __future__ import annotations

import pyarrow as pa
import pytest

from infeed.components.dataset import example_types
from infeed.components.example_gen.sources import kinds
from infeed.components.example_gen.sources.kinds import CellKind


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([None, None], CellKind.EMPTY),
        (["1", "-2", None], CellKind.INT),
        (["9223372036854775807", "-9223372036854775808"], CellKind.INT),
        (["9223372036854775808"], CellKind.TEXT),  # beyond 64 bits every digit counts
        (["0.5", "9223372036854775808"], CellKind.TEXT),
        (["007", " 7", "+7", "1_000"], CellKind.INT),  # whatever int() reads, as TFX does
        (["1", "0.5"], CellKind.FLOAT),
        (["1e5", "nan", "-inf", "Infinity", ".5", "5.", "+1.5"], CellKind.FLOAT),
        (["1e30", "1"], CellKind.FLOAT),
        (["1", "9" * 400], CellKind.TEXT),  # Arrow alone would read infinity
        (["1", "9" * 5_000], CellKind.TEXT),  # and so would Python
        (["0.5", f" -{'1_0' * 2_000} "], CellKind.TEXT),
        (["1", f"0.{'9' * 5_000}", "1e400", "inf"], CellKind.FLOAT),
        (["0x1F"], CellKind.TEXT),  # Arrow alone would read 31
        (["nan(1)"], CellKind.TEXT),
        (["1", "two"], CellKind.TEXT),
        (["true"], CellKind.TEXT),
        (["2020-01-01"], CellKind.TEXT),
        ([" "], CellKind.TEXT),
        (["١"], CellKind.TEXT),  # a digit to str, not to the bytes that TFX reads  # noqa: RUF001
    ],
)
def test_the_kind_of_a_column(cells: list[str | None], kind: CellKind) -> None:
    assert kinds.infer_kind(pa.array(cells, pa.string())) == kind


@pytest.mark.parametrize(
    ("cells", "to", "values", "unfit"),
    [
        (["1", None, "-2"], pa.int64(), [1, None, -2], []),
        (["1", "x", "2.0", "9223372036854775808"], pa.int64(), [1, None, None, None], [1, 2, 3]),
        (["1e5", "0x1F", " 2"], pa.float64(), [1e5, None, 2.0], [1]),
        (["x", None], pa.string(), ["x", None], []),
    ],
)
def test_cells_of_a_given_type(
    cells: list[str | None], to: pa.DataType, values: list[object], unfit: list[int]
) -> None:
    converted, places = kinds.convert(pa.array(cells, pa.string()), to)
    assert (converted.to_pylist(), places) == (values, unfit)


@pytest.mark.parametrize("cells", [["+412", "+5"], ["+412", "7"], ["1", "+9007199254740993"]], ids=str)
def test_plus_signs_are_those_of_pythons_integers(cells: list[str]) -> None:
    array = pa.array(cells)
    assert kinds.infer_kind(array) == CellKind.INT
    assert kinds.convert(array, pa.int64())[0].to_pylist() == [int(cell) for cell in cells]


def test_a_large_integer_with_a_plus_sign_beside_fractions_loses_its_digit_in_the_count() -> None:
    values, unfit = kinds.convert(pa.array(["1.5", "+9007199254740993"]), pa.float64())
    assert unfit == []
    assert example_types.count_rounded(values) == 1
