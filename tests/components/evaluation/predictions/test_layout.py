from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.encode import encode_examples
from infeed.components.evaluation.batches import Batch, KnownColumn
from infeed.components.evaluation.predictions.layout import AnswerColumns, PredictOptions, check_names
from infeed.components.evaluation.predictor import Signature

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

KNOWN = {
    "id": KnownColumn("bytes", is_list=False, is_text=True, some_missing=True),
    "tags": KnownColumn("bytes", is_list=True, is_text=True, some_missing=True),
    "bytes": KnownColumn("bytes", is_list=False, is_text=False, some_missing=True),
    "number": KnownColumn("int", is_list=False, is_text=False, some_missing=True),
    "x": KnownColumn("float", is_list=False, is_text=False, some_missing=True),
}


def giving(**outputs: tuple[str, Any]) -> Signature:
    """A signature that gives (dtype, shape) by name, and is never called."""
    import tensorflow as tf

    specs = {name: tf.TensorSpec(shape, dtype) for name, (dtype, shape) in outputs.items()}
    return Signature("any", "model", {}, {}, specs, True, None)


def batch(rows: dict[str, list[Any]]) -> Batch:
    return Batch("shard.gz", 0, encode_examples(pa.RecordBatch.from_pydict(rows)).to_pylist())


def test_columns_of_every_kind_go_along_and_what_is_missing_is_null() -> None:
    options = PredictOptions(keys=("id",), columns=("tags", "bytes", "number", "x"))
    rows = {
        "id": ["a", None, "é"],
        "tags": [["u", "v"], None, ["w"]],
        "bytes": [b"\xff", b"", None],
        "number": [1, None, -3],
        "x": [None, 0.5, 2.0],
    }
    layout = AnswerColumns.of(options, KNOWN, giving(), None)
    assert layout.table(batch(rows), {}).to_pydict() == rows
    assert [str(kind) for kind in layout.schema.types] == [
        "large_string",
        "large_list<item: large_string>",
        "large_binary",
        "int64",
        "float",
    ]


def test_a_column_that_a_whole_batch_lacks_is_null() -> None:
    layout = AnswerColumns.of(PredictOptions(keys=("tags",)), KNOWN, giving(), None)
    assert layout.table(batch({"id": ["a", "b"]}), {}).to_pydict() == {"tags": [None, None]}


@pytest.mark.parametrize(
    ("dtype", "shape", "parquet", "tfrecord"),
    [
        ("float32", [None], "float", "float"),
        ("float32", [None, 1], "float", "float"),
        ("float64", [None, 3], "fixed_size_list<item: double>[3]", "list<item: double>"),
        ("int32", [None, None], "list<item: int32>", "list<item: int32>"),
        ("bool", [None, 2, None], "fixed_size_list<item: list<item: bool>>[2]", "list<item: bool>"),
        ("string", [None], "string", "binary"),
        ("string", [None, 2], "fixed_size_list<item: string>[2]", "list<item: binary>"),
        ("float16", [None], "float", "float"),
        ("bfloat16", [None], "float", "float"),
        ("uint8", None, "uint8", "uint8"),
    ],
)
def test_types_of_outputs(dtype: str, shape: Any, parquet: str, tfrecord: str) -> None:
    for output_format, expected in (("parquet", parquet), ("tfrecord", tfrecord)):
        options = PredictOptions(output_format=output_format)  # type: ignore[arg-type]
        layout = AnswerColumns.of(options, {}, giving(y=(dtype, shape)), None)
        assert str(layout.schema.field("y").type) == expected


def test_an_output_of_unknown_shape_is_looked_at() -> None:
    layout = AnswerColumns.of(PredictOptions(), {}, giving(y=("int64", None)), {"y": np.zeros((5, 2, 3), np.int64)})
    assert str(layout.schema.field("y").type) == "list<item: list<item: int64>>"


NUMBERS = st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])


@settings(max_examples=40)
@given(st.data())
def test_outputs_of_any_shape_come_back_as_nested_lists(data: st.DataObject) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=4, max_side=3))
    array: npt.NDArray[Any] = data.draw(arrays.arrays(data.draw(NUMBERS), shape))
    array = np.nan_to_num(array) if array.dtype.kind == "f" else array
    is_open = data.draw(st.lists(st.booleans(), min_size=len(shape) - 1, max_size=len(shape) - 1))
    spec = [None, *(None if opened else size for opened, size in zip(is_open, shape[1:], strict=True))]
    layout = AnswerColumns.of(PredictOptions(), {}, giving(y=(array.dtype.name, spec)), None)
    column = layout.table(Batch("", 0, [b""] * len(array)), {"y": array}).column(0)
    assert column.to_pylist() == (array.ravel() if spec[1:] == [1] else array).tolist()


def test_in_examples_several_dimensions_come_end_to_end() -> None:
    layout = AnswerColumns.of(PredictOptions(output_format="tfrecord"), {}, giving(y=("int64", [None, 2, 2])), None)
    table = layout.table(Batch("", 0, [b""] * 2), {"y": np.arange(8).reshape(2, 2, 2)})
    assert table.to_pydict() == {"y": [[0, 1, 2, 3], [4, 5, 6, 7]]}


def test_bytes_that_are_no_text_are_refused_where_text_is_written() -> None:
    found = {"y": np.array([b"\xff"], object)}
    signature = giving(y=("string", [None]))
    with pytest.raises(InfeedError, match=r"'y' holds bytes(?s:.*)write tfrecord"):
        AnswerColumns.of(PredictOptions(), {}, signature, None).table(Batch("", 0, [b""]), found)
    layout = AnswerColumns.of(PredictOptions(output_format="tfrecord"), {}, signature, None)
    assert layout.table(Batch("", 0, [b""]), found).to_pydict() == {"y": [b"\xff"]}


def test_outputs_can_be_chosen_and_named() -> None:
    options = PredictOptions(keys=("id",), outputs={"guess": "id"})
    signature = giving(id=("int64", [None]), other=("int64", [None]))
    check_names(options, KNOWN, signature, "data")
    assert AnswerColumns.of(options, KNOWN, signature, None).schema.names == ["id", "guess"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PredictOptions(keys=("name",)), r"there is no column 'name'(?s:.*)one of 'bytes', 'id'"),
        (PredictOptions(outputs={"y": "z"}), r"there is no output 'z'(?s:.*)one of 'id', 'y'"),
        (PredictOptions(keys=("id",)), r"'id' is a column of the examples and one of the predictions"),
        (PredictOptions(output_format="examples"), r"'id' is a column of the examples and one of the predictions"),
    ],
)
def test_names_that_cannot_be_are_refused(options: PredictOptions, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        check_names(options, KNOWN, giving(id=("int64", [None]), y=("int64", [None])), "data")


def test_complex_numbers_have_no_place_in_a_column() -> None:
    with pytest.raises(InfeedError, match="output 'y' has type complex64"):
        AnswerColumns.of(PredictOptions(), {}, giving(y=("complex64", [None])), None)
