"""A small dataset, models of its label, and the two Evaluators run on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
def examples(tmp_path_factory: pytest.TempPathFactory, trees: pa.RecordBatch) -> Any:
    return _write_examples(tmp_path_factory.mktemp("examples"), trees)


@pytest.fixture(scope="session")
def write_examples() -> Callable[[Path, pa.RecordBatch], Any]:
    return _write_examples


def _write_examples(folder: Path, batch: pa.RecordBatch) -> Any:
    """An Examples artifact with the split eval, in two files, as somebody else would write it."""
    from tfx.types import artifact_utils, standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(folder), artifact_utils.encode_split_names(["train", "eval"])
    (folder / "Split-eval").mkdir(parents=True)
    for number, part in enumerate((batch.slice(0, batch.num_rows // 3), batch.slice(batch.num_rows // 3))):
        path = folder / "Split-eval" / f"data_tfrecord-{number:05}-of-00002.gz"
        write_records(str(path), [frame_records(encode_examples(part))], gzip_level=1)
    return artifact


@pytest.fixture(scope="session")
def write_model() -> Callable[..., Any]:
    return _write_model


def _write_model(
    folder: Path,
    *,
    kinds: Sequence[bytes] = KINDS,
    label: str = "kind",
    outputs: Sequence[str] = ("probabilities", "classes"),
    slope: float = 1.0,
    one_number: bool = False,
) -> Any:
    """A Model artifact: the probability of each kind, or one number, by a formula, and the features that TFX's have."""
    import tensorflow as tf
    from tfx.types import standard_artifacts

    model = tf.Module()
    keys = tf.constant(list(kinds))
    initializer = tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(kinds), dtype=tf.int64))
    model.table = tf.lookup.StaticHashTable(initializer, -1)
    number = tf.io.FixedLenFeature([1], tf.float32)
    spec = {"height": number, "girth": number, "kind": tf.io.FixedLenFeature([1], tf.string)}
    signature = [tf.TensorSpec([None], tf.string, name="examples")]

    @tf.function(input_signature=signature)
    def serving_default(examples: Any) -> Any:
        row = tf.io.parse_example(examples, spec)
        scores = [tf.zeros_like(row["height"]), row["height"], row["girth"], row["girth"] - row["height"]]
        sure = tf.nn.softmax(slope * tf.concat(scores[: len(kinds)], axis=1))
        found = {"probabilities": sure[:, :1] if one_number else sure, "classes": tf.gather(keys, tf.argmax(sure, 1))}
        return {name: found[name] for name in outputs}

    @tf.function(input_signature=signature)
    def transform_features(examples: Any) -> Any:
        row = tf.io.parse_example(examples, spec)
        return {label: model.table.lookup(row["kind"]), "is_tall": tf.cast(row["height"] > 0, tf.int64)}

    model.serving_default, model.transform_features = serving_default, transform_features
    signatures = {"serving_default": serving_default, "transform_features": transform_features}
    tf.saved_model.save(model, str(folder / "Format-Serving"), signatures=signatures)
    artifact = standard_artifacts.Model()
    artifact.uri, artifact.id = str(folder), 7
    return artifact


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _write_model(tmp_path_factory.mktemp("baseline"), slope=0.3)


@pytest.fixture(scope="session")
def eval_config() -> Callable[..., Any]:
    return _eval_config


def _eval_config(
    *metrics_specs: Mapping[str, Any], slices: Sequence[Mapping[str, Any]] = ({},), **model_spec: Any
) -> Any:
    """Of metrics_specs as TFMA's JSON has them; by default the number of rows."""
    import tfx.components  # noqa: F401 - before TFMA

    # isort: split
    import tensorflow_model_analysis as tfma
    from google.protobuf import json_format

    spec = {"label_key": "kind", "prediction_key": "probabilities", "signature_name": "serving_default"}
    spec["preprocessing_function_names"] = ["transform_features"]  # type: ignore[assignment]
    specs = [*metrics_specs] or [{"metrics": [{"class_name": "ExampleCount"}]}]
    given = {"model_specs": [spec | model_spec], "metrics_specs": specs, "slicing_specs": list(slices)}
    return json_format.ParseDict(given, tfma.EvalConfig())


@pytest.fixture(scope="session")
def metric() -> Callable[..., dict[str, Any]]:
    return _metric


def _metric(class_name: str, threshold: Mapping[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    """A MetricConfig of TFMA's; `module` is one of its own, the rest is the metric's."""
    module = config.pop("module", "")
    found = {"class_name": class_name, "module": module, "config": json.dumps(config) if config else ""}
    return {**found, **({"threshold": threshold} if threshold else {})}


@pytest.fixture(scope="session")
def execute() -> Callable[..., Any]:
    return _execute


def _execute(
    kind: type,
    folder: Path,
    examples: Any,
    eval_config: Any,
    model: Any = None,
    baseline: Any = None,
    beam_pipeline_args: Sequence[str] = (),
    **options: Any,
) -> tuple[str, Any]:
    """The folder of the evaluation that the component writes, and its blessing."""
    from tfx.types import channel_utils, standard_artifacts

    given = {"examples": examples, "model": model, "baseline_model": baseline}
    inputs = {name: [artifact] for name, artifact in given.items() if artifact is not None}
    channels = {name: channel_utils.as_channel(artifacts) for name, artifacts in inputs.items()}
    component = kind(**channels, eval_config=eval_config, **options)
    evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
    evaluation.uri, blessing.uri = str(folder / "evaluation"), str(folder / "blessing")
    for output in (evaluation, blessing):
        Path(output.uri).mkdir(parents=True)
    executor = component.executor_spec.executor_class
    context = executor.Context(beam_pipeline_args=[*beam_pipeline_args], tmp_dir=str(folder / "tmp"), unique_id="1")
    outputs = {"evaluation": [evaluation], "blessing": [blessing]}
    executor(context).Do(inputs, outputs, {**component.exec_properties, "current_component_id": "Evaluator"})
    return evaluation.uri, blessing


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
