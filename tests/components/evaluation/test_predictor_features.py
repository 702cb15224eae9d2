from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.batches import Batch, batches_of, input_shards, known_columns
from infeed.components.evaluation.predictor import Signature, check_inputs, features_of

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load


def taking(*, takes_examples: bool = False, **inputs: Any) -> Signature:
    """A signature that takes these specs, and is never called."""
    return Signature("any", "model", {name: name for name in inputs}, inputs, {}, takes_examples, None)


def spec(dtype: str, *shape: int | None) -> Any:
    import tensorflow as tf

    return tf.TensorSpec([None, *shape], dtype)


@pytest.fixture
def batch(make_dataset: Callable[..., str]) -> Callable[..., Batch]:
    """batch(column=values, ...) -> the records of these rows."""

    def make(**columns: list[Any]) -> Batch:
        [shard] = input_shards([make_dataset(columns)], ["train"])
        return next(batches_of(shard, 100))

    return make


def test_records_go_as_they_are_to_a_signature_that_takes_them(batch: Callable[..., Batch]) -> None:
    given = batch(x=[1.0])
    assert features_of(given, taking(takes_examples=True, examples=spec("string"))) == {"examples": given.records}


def test_features_are_dense_arrays_of_the_models_types(batch: Callable[..., Batch]) -> None:
    given = batch(x=[1, 2], pair=[[1, 2], [3, 4]], word=["a", "bc"], four=[[1.0, 2.0, 3.0, 4.0]] * 2)
    signature = taking(x=spec("float32"), pair=spec("int64", 2), word=spec("string", 1), four=spec("float32", 2, 2))
    found = features_of(given, signature)
    assert {name: array.tolist() for name, array in found.items()} == {
        "x": [1.0, 2.0],
        "pair": [[1, 2], [3, 4]],
        "word": [[b"a"], [b"bc"]],
        "four": [[[1.0, 2.0], [3.0, 4.0]]] * 2,
    }
    assert found["x"].dtype.name == "float32"


def test_a_dimension_that_the_model_leaves_open_is_that_of_the_rows(batch: Callable[..., Batch]) -> None:
    given = batch(pair=[[1, 2], [3, 4]])
    assert features_of(given, taking(pair=spec("int64", None)))["pair"].tolist() == [[1, 2], [3, 4]]


def test_missing_numbers_are_nan_and_missing_text_is_empty(batch: Callable[..., Batch]) -> None:
    found = features_of(batch(x=[None, 1.5], word=["a", None]), taking(x=spec("float32"), word=spec("string")))
    assert math.isnan(found["x"][0])
    assert found["x"][1] == 1.5
    assert found["word"].tolist() == [b"a", b""]


@pytest.mark.parametrize(
    ("values", "shape", "message"),
    [
        ([1, None], (), r"(?s)'n' has no value, but int64 has no value that means missing.*gz, record 1"),
        ([[1], [1, 2]], (), r"(?s)'n' has 2 values, but the model takes 1.*record 1"),
        ([[1, 2], [1]], (2,), r"(?s)'n' has 1 values, but the model takes 2.*record 1"),
    ],
)
def test_rows_that_have_no_tensor_are_named(
    batch: Callable[..., Batch], values: list[Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InfeedError, match=message):
        features_of(batch(n=values), taking(n=spec("int64", *shape)))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"y": "float32"}, "the model takes 'y'"),
        ({"id": "float32"}, "column 'id' is bytes, but the model takes float32"),
        ({"x": "int64"}, "column 'x' is float, but the model takes int64"),
        ({"number": "int64"}, "column 'number' has rows without a value, but int64 has no value that means missing"),
        ({"number": "string"}, "column 'number' is int, but the model takes string"),
    ],
)
def test_columns_that_the_model_cannot_take_are_refused_beforehand(
    dataset: str, inputs: dict[str, str], message: str
) -> None:
    known = known_columns(input_shards([dataset], None))
    check_inputs(taking(x=spec("float32"), number=spec("float32"), id=spec("string")), known, dataset)
    with pytest.raises(InfeedError, match=message):
        check_inputs(taking(**{name: spec(dtype) for name, dtype in inputs.items()}), known, dataset)
