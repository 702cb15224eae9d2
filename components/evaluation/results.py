"""Writes what was measured as TFMA's own files, which its loaders, TFX's Pusher and the notebooks of both read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as tfma_writer

from infeed.components.dataset import files
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.evaluation.metric_plan import Metrics
from infeed.components.evaluation.slices import SliceKey

Sliced = Sequence[tuple[SliceKey, Metrics]]


def write_results(folder: str, eval_config: Any, locations: Mapping[str, str], sliced: Sliced) -> Any:
    """Writes metrics, plots, the verdict on the thresholds, and the eval config, each file whole or not at all.

    Args:
      locations: path of each model, by its name.
      sliced: the metrics of each slice.

    Returns:
      TFMA's ValidationResult.
    """
    metrics = [(key, _of_kind(found, plots=False)) for key, found in sliced]
    plots = [(key, _of_kind(found, plots=True)) for key, found in sliced]
    verdict = validate(metrics, eval_config)
    _write(folder, constants.METRICS_KEY, [tfma_writer.convert_slice_metrics_to_proto(one, []) for one in metrics])
    _write(folder, constants.PLOTS_KEY, [tfma_writer.convert_slice_plots_to_proto(one, []) for one in plots])
    empty = [tfma_writer.convert_slice_attributions_to_proto((key, {})) for key, _ in sliced]
    _write(folder, constants.ATTRIBUTIONS_KEY, empty)
    _write_records(files.join(folder, f"{constants.VALIDATIONS_KEY}.tfrecord"), [verdict])
    run = config_pb2.EvalRun(
        eval_config=eval_config,
        version=tfma.__version__,
        data_location="<user provided PCollection>",  # TFMA's words, for people: nobody reads it
        file_format="<unknown>",
        model_locations=locations,
    )
    files.write_bytes(files.join(folder, "eval_config.json"), f"{json_format.MessageToJson(run)}\n".encode())
    return verdict


def validate(metrics: Sliced, eval_config: Any) -> Any:
    """TFMA's ValidationResult: which thresholds are missed in which slices, and which slices are missing."""
    combine = tfma_writer.CombineValidations(eval_config)
    found = combine.create_accumulator()
    for one in metrics:
        found = combine.add_input(found, metrics_validator.validate_metrics(one, eval_config))
    return combine.extract_output(found)


def _of_kind(metrics: Metrics, *, plots: bool) -> Metrics:
    return {key: value for key, value in metrics.items() if isinstance(key, metric_types.PlotKey) == plots}


def _write(folder: str, name: str, protos: Sequence[Any]) -> None:
    _write_records(files.join(folder, f"{name}-00000-of-00001.tfrecord"), protos)


def _write_records(path: str, protos: Sequence[Any]) -> None:
    serialized: Callable[[Any], bytes] = lambda proto: proto.SerializeToString(deterministic=True)  # noqa: E731
    payloads = pa.array([serialized(proto) for proto in protos], pa.large_binary())
    write_records(path, [frame_records(payloads)], gzip_level=None)
