from __future__ import annotations

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.inputs import BadRow, BadRows, conform

SCHEMA = pa.schema([("n", pa.uint64()), ("l", pa.list_(pa.int64()))])


def batch(*rows: tuple[int | None, list[int | None] | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n, "l": values} for n, values in rows], schema=SCHEMA)


FIRST, SECOND = batch((1, [0]), (None, None)), batch((2, []), (2**63, [1]), (3, [1, None]), (4, [4]))


def test_a_row_that_does_not_fit_is_reported_and_left_out() -> None:
    bad_rows = BadRows("reject", limit=2)
    fitted = list(conform([FIRST, SECOND], SCHEMA, "a.parquet", bad_rows, first_row=101))
    assert [one.to_pydict()["n"] for one in fitted] == [[1, None], [2, 4]]
    assert bad_rows.take() == (
        BadRow(
            "a.parquet", 104, "n", f"{2**63} does not fit into a signed 64-bit integer", f'{{"n": {2**63}, "l": [1]}}'
        ),
        BadRow("a.parquet", 105, "l", "a list contains null", '{"n": 3, "l": [1, null]}'),
    )


def test_or_it_fails_with_its_row_and_column() -> None:
    with pytest.raises(InfeedError, match=r"(?s)does not fit.*a\.parquet, line 4, column 'n'"):
        list(conform([FIRST, SECOND], SCHEMA, "a.parquet", BadRows()))


def test_batches_that_fit_pass_as_they_are() -> None:
    assert list(conform([FIRST], SCHEMA, "a", BadRows())) == [FIRST]


def test_all_that_is_wrong_with_a_list_is_found() -> None:
    schema = pa.schema([("l", pa.list_(pa.uint64()))])
    wrong = pa.RecordBatch.from_pydict({"l": [[1], [None], [2**63], [3, None], None]}, schema=schema)
    bad_rows = BadRows("reject", limit=3)
    (fitted,) = conform([wrong], schema, "a", bad_rows)
    assert fitted.to_pydict() == {"l": [[1], None]}
    assert [row.line for row in bad_rows.take()] == [2, 3, 4]


def test_a_date_beyond_what_python_knows_is_reported_like_others() -> None:
    schema = pa.schema([("d", pa.date32())])
    far = pa.RecordBatch.from_arrays([pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())], schema=schema)
    bad_rows = BadRows("reject", limit=1)
    (fitted,) = conform([far], schema, "a", bad_rows)
    assert fitted.num_rows == 1
    (row,) = bad_rows.take()
    assert (row.line, row.text) == (2, f'{{"d": [{2**31 - 1}]}}')
    assert "does not fit into microseconds" in row.reason
