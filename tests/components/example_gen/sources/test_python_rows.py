from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources.python_rows import infer_field, to_batch


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None], pa.int64()),
        ([1, 0.5], pa.float64()),
        ([Decimal("0.5")], pa.float64()),
        ([UUID(int=1)], pa.string()),
        ([{"a": 1}], pa.string()),
        ([[1], None], pa.list_(pa.int64())),
        ([None], pa.null()),
    ],
)
def test_the_type_of_values(values: list[object], kind: pa.DataType) -> None:
    assert infer_field("a", values, "here", "do").type == kind


def test_values_of_several_types_are_an_error() -> None:
    with pytest.raises(InfeedError, match="mixed") as error:
        infer_field("a", [1, "x"], "here", "convert them")
    assert (error.value.where, error.value.do) == ("here, column 'a'", "convert them")


def test_rows_that_do_not_fit_are_left_out() -> None:
    bad_rows = BadRows("reject", 10)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    batch = to_batch([(1, "x"), (0.5, "y"), (None, None), ("007", "z")], schema, "here", bad_rows, first_row=11)
    assert batch.to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": None}]
    assert [row.line for row in bad_rows.take()] == [12, 14]
