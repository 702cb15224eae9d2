"""A small dataset, models of its label, and the two Evaluators run on them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records

ROWS = 120
KINDS = (b"oak", b"elm", b"ash")
CITIES = (b"Bern", b"Chur", "Genève".encode())


@pytest.fixture(scope="session")
def build() -> Iterator[ModuleType]:
    """`builders.py`: datasets, models and eval configs, and how an Evaluator is run on them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield importlib.import_module("builders")


@pytest.fixture(scope="session")
def trees() -> pa.RecordBatch:
    """Rows with a label of three kinds, of which the numbers tell a part."""
    draw = np.random.default_rng(5)
    kind = draw.integers(0, 3, ROWS)
    sizes = draw.normal(size=(ROWS, 2)) + np.stack([kind == 1, kind == 2], axis=1) * 1.5
    cities = [None if row % 11 == 0 else CITIES[row % 3] for row in range(ROWS)]
    birds = [[["crow", "tit", "owl"][i] for i in range(row % 4)] for row in range(ROWS)]
    return pa.RecordBatch.from_pydict(
        {
            "kind": pa.array([KINDS[number] for number in kind], pa.binary()),
            "height": pa.array(sizes[:, 0], pa.float32()),
            "girth": pa.array(sizes[:, 1], pa.float32()),
            "weight": pa.array(draw.choice([0.0, 0.5, 1.0, 2.25], ROWS), pa.float32()),
            "age": pa.array(draw.integers(1, 3, ROWS), pa.int64()),
            "city": pa.array(cities, pa.binary()),
            "birds": pa.array(birds, pa.list_(pa.string())),
        }
    )


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory, trees: pa.RecordBatch, build: ModuleType) -> Any:
    return build.write_examples(tmp_path_factory.mktemp("examples"), trees)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, build: ModuleType) -> Any:
    return build.write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory, build: ModuleType) -> Any:
    return build.write_model(tmp_path_factory.mktemp("baseline"), slope=0.3)


PREDICTED: Mapping[str, list[Any]] = {
    "id": [f"row {i}" for i in range(10)],
    "number": [None if i == 3 else i for i in range(10)],
    "x": [None if i == 4 else i / 2 for i in range(10)],
    "pair": [[i, -i] for i in range(10)],
    "tags": [["a"] * (i % 3) or None for i in range(10)],
    "bytes": [bytes([255, i]) for i in range(10)],
}


def write_dataset(folder: Path, rows: Mapping[str, list[Any]], shards: int = 2) -> None:
    """As somebody else writes it: as many rows in each shard of `train`, the last shard again in `eval`."""
    table = pa.RecordBatch.from_pydict(dict(rows))
    each = table.num_rows // shards
    for split, first in (("train", 0), ("eval", shards - 1)):
        for number in range(first, shards):
            name = f"data_tfrecord-{number - first:05d}-of-{shards - first:05d}.gz"
            records = frame_records(encode_examples(table.slice(number * each, each)))
            write_records(str(folder / f"Split-{split}" / name), [records], gzip_level=1)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted of datasets is kept in the home folder, where tests leave nothing behind."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def dataset(once: Callable[..., Path]) -> str:
    """Split-train of PREDICTED in two shards, Split-eval of the second half of them in one."""
    return str(once("predicted examples", lambda folder: write_dataset(folder, PREDICTED)))


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., str]:
    """make_dataset(rows, shards=1) -> the folder of a dataset of these columns."""

    def make(rows: Mapping[str, list[Any]], shards: int = 1) -> str:
        write_dataset(tmp_path / "examples", rows, shards)
        return str(tmp_path / "examples")

    return make


def save_model(folder: Path) -> None:
    """
    serving_default   tf.Examples -> numbers, text and truth values, from [batch] to [batch, 2, 3], all made of x
    without_word      the same without the text that is [batch], on which TFX's BulkInferrer fails
    features          x float32 [batch], pair int64 [batch, 2] -> their sum
    whole             number int64 [batch] -> itself
    scalar, constant  tf.Examples -> outputs without the batch's rows
    unknown           tf.Examples -> an output whose shape the signature does not tell
    halves            tf.Examples -> float16
    bytes             tf.Examples -> bytes that are no text
    several           tf.Examples -> the outputs of a model with a number, a class and a set of classes
    """
    import tensorflow as tf

    examples = tf.TensorSpec([None], tf.string, name="examples")
    x_spec, pair_spec, number_spec = (
        tf.TensorSpec([None], tf.float32, name="x"),
        tf.TensorSpec([None, 2], tf.int64, name="pair"),
        tf.TensorSpec([None], tf.int64, name="number"),
    )

    def x_of(records: Any) -> Any:
        return tf.io.parse_example(records, {"x": tf.io.FixedLenFeature([], tf.float32, -1.0)})["x"]

    def function(answer: Callable[..., Any], *specs: Any) -> Any:
        return tf.function(answer, input_signature=specs, autograph=False)

    def all_kinds(examples: Any) -> Any:
        x = x_of(examples)
        both = tf.stack([x, -x], 1)
        return {
            "double": tf.cast(2 * x, tf.float64),
            "column": x[:, tf.newaxis],
            "pair": both,
            "grid": tf.reshape(tf.stack([x] * 6, 1), [-1, 2, 3]),
            "word": tf.strings.as_string(x, 1),
            "words": tf.strings.as_string(both, 1),
            "large": x > 2,
            "whole": tf.cast(x, tf.int32),
        }

    def without_word(examples: Any) -> Any:
        return {name: output for name, output in all_kinds(examples).items() if name != "word"}

    def features(x: Any, pair: Any) -> Any:
        return {"sum": x + tf.cast(tf.reduce_sum(pair, 1), tf.float32)}

    def unknown(examples: Any) -> Any:
        values = tf.stack([x_of(examples)] * 2, 1)
        return {"y": tf.compat.v1.placeholder_with_default(values, tf.TensorShape(None))}

    def several(examples: Any) -> Any:
        x = x_of(examples)
        share = tf.sigmoid(tf.stack([x, -x], 1))
        return {
            "price": x,
            "sold/probabilities": share,
            "sold/class": tf.where(x > 0, "yes", "no")[:, tf.newaxis],
            "tags/probabilities": share,
            "tags/class": tf.where(share > 0.5, [["big", "small"]], ""),
        }

    signatures = {
        "serving_default": function(all_kinds, examples),
        "without_word": function(without_word, examples),
        "features": function(features, x_spec, pair_spec),
        "whole": function(lambda number: {"same": number}, number_spec),
        "scalar": function(lambda examples: {"y": tf.reduce_sum(x_of(examples))}, examples),
        "constant": function(lambda examples: {"y": x_of(examples)[:2]}, examples),
        "unknown": function(unknown, examples),
        "halves": function(lambda examples: {"y": tf.cast(x_of(examples), tf.float16)}, examples),
        "bytes": function(lambda examples: {"y": tf.fill(tf.shape(examples), b"\xff")}, examples),
    }
    signatures["several"] = function(several, examples)
    tf.saved_model.save(tf.Module(), str(folder), signatures)


@pytest.fixture(scope="session")
def asked_model(once: Callable[..., Path]) -> str:
    """Its signatures are those of `save_model`."""
    return str(once("predicting model", save_model))
