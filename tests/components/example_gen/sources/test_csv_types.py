from __future__ import annotations

import pyarrow as pa
import pytest

from infeed.components.example_gen.sources import csv_types
from infeed.components.example_gen.sources.csv_types import Kind


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([None, None], Kind.EMPTY),
        (["1", "-2", None], Kind.INT),
        (["9223372036854775807", "-9223372036854775808"], Kind.INT),
        (["9223372036854775808"], Kind.TEXT),  # beyond 64 bits every digit counts
        (["0.5", "9223372036854775808"], Kind.TEXT),
        (["007", " 7", "+7", "1_000"], Kind.INT),  # whatever int() reads, as TFX does
        (["1", "0.5"], Kind.FLOAT),
        (["1e5", "nan", "-inf", "Infinity", ".5", "5.", "+1.5"], Kind.FLOAT),
        (["1e30", "1"], Kind.FLOAT),
        (["0x1F"], Kind.TEXT),  # Arrow alone would read 31
        (["nan(1)"], Kind.TEXT),
        (["1", "two"], Kind.TEXT),
        (["true"], Kind.TEXT),
        (["2020-01-01"], Kind.TEXT),
        ([" "], Kind.TEXT),
        (["١"], Kind.TEXT),  # a digit to str, not to the bytes that TFX reads  # noqa: RUF001
    ],
)
def test_the_kind_of_a_column(cells: list[str | None], kind: Kind) -> None:
    assert csv_types.infer_kind(pa.array(cells, pa.string())) == kind


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
    converted, places = csv_types.convert(pa.array(cells, pa.string()), to)
    assert (converted.to_pylist(), places) == (values, unfit)
