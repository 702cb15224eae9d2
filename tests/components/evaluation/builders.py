"""Examples, models and eval configs for the two Evaluators, and how either is run on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records

KINDS = (b"oak", b"elm", b"ash")


def write_examples(folder: Path, batch: pa.RecordBatch) -> Any:
    """An Examples artifact with the split eval, in two files, as somebody else would write it."""
    from tfx.types import artifact_utils, standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(folder), artifact_utils.encode_split_names(["train", "eval"])
    (folder / "Split-eval").mkdir(parents=True)
    for number, part in enumerate((batch.slice(0, batch.num_rows // 3), batch.slice(batch.num_rows // 3))):
        path = folder / "Split-eval" / f"data_tfrecord-{number:05}-of-00002.gz"
        write_records(str(path), [frame_records(encode_examples(part))], gzip_level=1)
    return artifact


def write_model(
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
    return save_model(model, folder)


def save_model(model: Any, folder: Path) -> Any:
    """A Model artifact of a module with the functions `serving_default` and `transform_features`."""
    import tensorflow as tf
    from tfx.types import standard_artifacts

    signatures = {name: getattr(model, name) for name in ("serving_default", "transform_features")}
    tf.saved_model.save(model, str(folder / "Format-Serving"), signatures=signatures)
    artifact = standard_artifacts.Model()
    artifact.uri, artifact.id = str(folder), 7
    return artifact


def eval_config(
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


def metric(class_name: str, threshold: Mapping[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    """A MetricConfig of TFMA's; `module` is one of its own, the rest is the metric's."""
    module = config.pop("module", "")
    found = {"class_name": class_name, "module": module, "config": json.dumps(config) if config else ""}
    return {**found, **({"threshold": threshold} if threshold else {})}


def execute(
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
