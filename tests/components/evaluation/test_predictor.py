from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.batches import Batch, batches_of, input_shards, known_columns
from infeed.components.evaluation.predictor import (
    Predictor,
    RefusedBatchError,
    Signature,
    check_inputs,
    features_of,
    model_folder,
)

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load


@pytest.fixture(scope="module")
def loaded(asked_model: str) -> Predictor:
    return Predictor.load(asked_model)


def test_a_signature_says_what_it_takes_and_gives(loaded: Predictor) -> None:
    by_example, by_feature = loaded.signature("serving_default"), loaded.signature("features")
    assert by_example.takes_examples
    assert list(by_example.inputs) == ["examples"]
    assert list(by_example.outputs) == ["column", "double", "grid", "large", "pair", "whole", "word", "words"]
    assert not by_feature.takes_examples
    assert {name: spec.dtype.name for name, spec in by_feature.inputs.items()} == {"pair": "int64", "x": "float32"}


def test_a_batch_is_answered_as_arrays(loaded: Predictor) -> None:
    found = loaded.signature("features")({"x": [0.5, 1.0], "pair": np.array([[1, 2], [3, 4]])})
    assert {name: array.tolist() for name, array in found.items()} == {"sum": [3.5, 8.0]}


def test_what_tensorflow_refuses_is_told_in_its_words(loaded: Predictor) -> None:
    with pytest.raises(RefusedBatchError, match=r"(?s)Could not parse example.*signature 'serving_default'"):
        loaded.signature("serving_default")({"examples": [b"no example"]})


def test_outputs_without_the_rows_of_the_batch_are_refused(loaded: Predictor) -> None:
    with pytest.raises(InfeedError, match=r"output 'y' has the shape \[\]"):
        loaded.signature("scalar").check_outputs()
    with pytest.raises(InfeedError, match=r"output 'y' has the shape \[2\], without the 3 rows"):
        loaded.signature("constant")({"examples": [b"", b"", b""]})


def test_a_signature_that_is_not_there_is_refused(loaded: Predictor) -> None:
    with pytest.raises(InfeedError, match=r"(?s)no signature 'raw', only serving_default.*do: +ask another"):
        loaded.signature("raw", do="ask another")


def test_an_export_of_the_trainer_says_which_feature_an_argument_takes(tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.raw_features, module.raw_arguments = tf.Variable(["image/encoded"]), tf.Variable(["image_encoded"])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "image_encoded")], autograph=False)
    def raw(image_encoded: Any) -> Any:
        return {"length": tf.strings.length(image_encoded)}

    tf.saved_model.save(module, str(tmp_path), {"raw": raw})
    signature = Predictor.load(str(tmp_path)).signature("raw")
    assert not signature.takes_examples  # although it takes nothing but text
    assert signature({"image/encoded": [b"123", b"1"]})["length"].tolist() == [3, 1]


def test_the_newest_version_is_meant_that_has_been_pushed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "11").mkdir()
    for version in ("9", "10", "temporary"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    assert model_folder(str(tmp_path)) == f"{tmp_path}/10"
    assert model_folder(f"{tmp_path}/9") == f"{tmp_path}/9"


def test_the_model_of_a_run_is_the_newest_that_it_pushed(tmp_path: Path) -> None:
    (tmp_path / "artifacts" / "12").mkdir(parents=True)
    (tmp_path / "serving" / "9").mkdir(parents=True)
    with pytest.raises(InfeedError, match="there is no saved model"):
        model_folder(str(tmp_path))
    (tmp_path / "serving" / "9" / "saved_model.pb").touch()
    assert model_folder(str(tmp_path)) == f"{tmp_path}/serving/9"


def test_of_an_operation_that_nobody_here_knows_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    def load(*_: Any, **__: Any) -> Any:
        raise tf.errors.NotFoundError(None, None, "Op type not registered 'Fast' in binary on vm. Make sure the Op is")

    (tmp_path / "saved_model.pb").touch()
    monkeypatch.setattr(tf.saved_model, "load", load)
    with pytest.raises(InfeedError, match=r"(?s)registered 'Fast' in binary on vm\n.*pip install 'tfx-infeed\[text\]'"):
        Predictor.load(str(tmp_path))


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="there is no saved model"):
        Predictor.load(str(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(InfeedError, match="the model cannot be loaded"):
        Predictor.load(str(tmp_path))


@pytest.fixture(scope="module")
def of_words(tmp_path_factory: pytest.TempPathFactory) -> Signature:
    """A signature with a sparse and a ragged output."""
    import tensorflow as tf

    def answer(text: Any) -> Any:
        words = tf.strings.split(text)
        return {"ragged": tf.strings.length(words), "sparse": words.to_sparse()}

    signature = tf.function(answer, input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
    folder = str(tmp_path_factory.mktemp("words"))
    tf.saved_model.save(tf.Module(), folder, {"words": signature})
    return Predictor.load(folder).signature("words")


def test_sparse_and_ragged_outputs_are_padded_as_tfma_does(of_words: Signature) -> None:
    found = of_words({"text": ["an elm", "oak"]})
    assert found["ragged"].tolist() == [[2, 3], [3, 0]]
    assert found["sparse"].tolist() == [[b"an", b"elm"], [b"oak", b""]]


@pytest.mark.parametrize(("output", "kind"), [("ragged", "RaggedTensor"), ("sparse", "SparseTensor")])
def test_rows_of_predictions_are_not_padded_to_the_longest_of_their_batch(
    of_words: Signature, output: str, kind: str
) -> None:
    one = replace(of_words, outputs={output: of_words.outputs[output]})
    with pytest.raises(InfeedError, match=rf"output {output!r} is a {kind}(?s:.*)signature 'words'"):
        one.check_outputs()


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
