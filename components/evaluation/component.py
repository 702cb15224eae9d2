"""Evaluator: TFX's component, argument for argument, in in batches, on an engine; and what it executes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import tfx.components  # before TFMA: the other order fails on TFX 1.21
from google.protobuf import json_format
from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.utils import json_utils, path_utils, proto_utils

# isort: split
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants as tfma_constants
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as tfma_writer

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.ranges import record_ranges
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.engine.choice import ChosenMap, Cluster, Work, choose
from infeed.components.engine_executor import Artifacts, EngineExecutor, unread_format
from infeed.components.errors import InfeedError
from infeed.components.evaluation.measuring import Evaluation, measure, plan_of
from infeed.components.evaluation.metric_plan import Metrics
from infeed.components.evaluation.pairs import BeyondError
from infeed.components.evaluation.predictions.batches import BYTES
from infeed.components.evaluation.slices import SliceKey
from infeed.components.evaluation.tfma_names import check_names

EXAMPLES, MODEL, BASELINE, SCHEMA = "examples", "model", "baseline_model", "schema"
EVAL_CONFIG, SPLITS = "eval_config", "example_splits"
ROWS = 4_096  # of a batch, at most
# Of examples: a process that loads TensorFlow, TFMA and a model takes some 8 s, in which one evaluates about as many.
BYTES_PER_PROCESS = 96 << 20
_COUNTED_BYTES_PER_PROCESS = 256 << 20
# A call of the graph of a wide table takes as long for one row as for hundreds, and its records hold no pictures.
WIDE, WIDE_BYTES = 100, 64 << 20
Sliced = Sequence[tuple[SliceKey, Metrics]]
_MODULES = ("module_file", "module_path")
_log = logging.getLogger(__name__)


class EvaluatorExecutor(EngineExecutor):
    """Writes TFMA's files and the blessing; TFX's own executor does it where only TFMA's code can."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """As TFX calls it."""
        self._log_startup(input_dict, output_dict, exec_properties)
        try:
            output = artifact_utils.get_single_instance(output_dict[constants.EVALUATION_KEY])
            verdict = evaluate(input_dict, output_dict, exec_properties, self.cluster(output))
        except BeyondError as beyond:
            arguments = input_dict, output_dict, exec_properties
            self.leave_to_tfx("evaluator", "the model is evaluated", beyond, *arguments)
            return
        if verdict is not None:
            blessing = artifact_utils.get_single_instance(output_dict["blessing"])
            _bless(blessing, bool(verdict.validation_ok), input_dict, exec_properties)


def evaluate(
    input_dict: Artifacts,
    output_dict: Artifacts,
    exec_properties: Mapping[str, Any],
    cluster: Cluster | None = None,
) -> Any:
    """Writes the evaluation.

    Args:
      cluster: the way to the runner that Beam's options name.

    Returns:
      TFMA's ValidationResult; None where the eval config has no thresholds, so that nothing is blessed.

    Raises:
      BeyondError: what only TFX's own executor can do; nothing is written.
      InfeedError: wrong input, with what, where and what to do.
    """
    check_names()
    eval_config = _eval_config(input_dict, exec_properties)
    if unread := unread_format(input_dict[EXAMPLES]):
        raise BeyondError(unread)
    folders = _folders(input_dict[EXAMPLES], exec_properties)
    evaluation = _evaluation(eval_config, input_dict)
    plan_of(evaluation.config)  # before anything is read: it says what cannot be done here
    ranges = record_ranges(folders, ChosenMap("counts", _COUNTED_BYTES_PER_PROCESS, cluster))
    work = Work("evaluates", len(ranges), sum(part.bytes for part in ranges), BYTES_PER_PROCESS, 2 << 30, alone=_gpu())
    with choose(work, cluster) as engine:
        sliced = measure(evaluation, ranges, engine)
    models = {spec.name: _path(input_dict, spec) for spec in _candidate_first(eval_config)}
    target = artifact_utils.get_single_uri(output_dict[constants.EVALUATION_KEY])
    verdict = write_results(target, eval_config, models, sliced)
    thresholds = tfma.metrics.metric_thresholds_from_metrics_specs(eval_config.metrics_specs, eval_config=eval_config)
    return verdict if thresholds else None


def _eval_config(input_dict: Artifacts, exec_properties: Mapping[str, Any]) -> Any:
    """The eval config, completed as TFX's executor does.

    Raises:
      BeyondError: it asks for what is not done here, or there is none.
      InfeedError: it contradicts itself.
    """
    if not exec_properties.get(EVAL_CONFIG):
        raise BeyondError("there is no eval_config, but the slices of an estimator (feature_slicing_spec)")
    for name in _MODULES:
        if exec_properties.get(name):
            raise BeyondError(f"{name} has functions of its own")
    if not input_dict.get(MODEL):
        raise BeyondError("there is no model: predictions are taken from the examples")
    given = proto_utils.json_to_proto(exec_properties[EVAL_CONFIG], tfma.EvalConfig())
    has_baseline = bool(input_dict.get(BASELINE))
    found = tfma.utils.update_eval_config_with_defaults(given, has_baseline=has_baseline, rubber_stamp=True)
    try:
        tfma.utils.verify_eval_config(found)
    except ValueError as error:
        raise InfeedError(str(error).strip().splitlines()[0], where=EVAL_CONFIG, do="mend it") from error
    if reason := _beyond(found, has_baseline):
        raise BeyondError(reason)
    return found


def _beyond(eval_config: Any, has_baseline: bool) -> str:
    """Why only TFX's own executor can do it; empty where ours can."""
    options = eval_config.options
    if len(eval_config.model_specs) != 1 + has_baseline:
        return f"the eval config has {len(eval_config.model_specs)} model_specs"
    if options.compute_confidence_intervals.value:
        return "confidence intervals are asked for"
    if options.min_slice_size.value > 1:
        return f"slices of fewer than {options.min_slice_size.value} rows are hidden (min_slice_size)"
    if options.disabled_outputs.values:
        return f"outputs are disabled: {', '.join(options.disabled_outputs.values)}"
    if eval_config.cross_slicing_specs:
        return "slices are compared with one another (cross_slicing_specs)"
    if any(spec.slice_keys_sql for spec in eval_config.slicing_specs):
        return "slices are given in SQL"
    if any(spec.query_key for spec in eval_config.metrics_specs):
        return "rows are grouped by a query_key"
    several = any(spec.output_names or spec.output_weights for spec in eval_config.metrics_specs)
    return "metrics are of one output of several" if several else ""


def _folders(examples: Sequence[types.Artifact], exec_properties: Mapping[str, Any]) -> list[str]:
    """The folders of the splits to evaluate on.

    Raises:
      InfeedError: there is no such split.
    """
    asked = json_utils.loads(exec_properties.get(SPLITS) or "null") or ["eval"]
    there = {name for artifact in examples for name in artifact_utils.decode_split_names(artifact.split_names)}
    for split in asked:
        if split not in there:
            raise InfeedError(
                f"there is no split {split!r}",
                where=f"Evaluator, {SPLITS}",
                do=f"name some of {', '.join(sorted(there)) or 'those that the examples have'}",
            )
    return [uri for split in asked for uri in artifact_utils.get_split_uris(list(examples), split)]


def _evaluation(eval_config: Any, input_dict: Artifacts) -> Evaluation:
    known = frozenset[str]().union(*(known_columns(artifact.uri) for artifact in input_dict[EXAMPLES]))
    options = eval_config.options
    return Evaluation(
        config=eval_config.SerializeToString(deterministic=True),
        models=tuple(
            (spec.SerializeToString(deterministic=True), _path(input_dict, spec))
            for spec in _candidate_first(eval_config)
        ),
        default_metrics=not options.HasField("include_default_metrics") or options.include_default_metrics.value,
        known=known,
        most_rows=ROWS,
        most_bytes=WIDE_BYTES if len(known) > WIDE else BYTES,
    )


def _candidate_first(eval_config: Any) -> list[Any]:
    return sorted(eval_config.model_specs, key=lambda spec: bool(spec.is_baseline))


def _gpu() -> str:
    """Why one process does it; empty where several may."""
    return "the model is on a GPU" if tf.config.list_physical_devices("GPU") else ""


def known_columns(root: str) -> set[str]:
    """The columns that the manifest of a dataset names; none where there is no manifest, or it does not know them."""
    if not files.exists(files.join(root, names.MANIFEST)):
        return set()
    return {column.name for column in Manifest.read(root).schema}


def _path(input_dict: Artifacts, spec: Any) -> str:
    """Where TFX's executor finds the SavedModel of a ModelSpec."""
    model = artifact_utils.get_single_instance(input_dict[BASELINE if spec.is_baseline else MODEL])
    found = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
    return files.join(found)


def _bless(blessing: types.Artifact, is_good: bool, input_dict: Artifacts, exec_properties: Mapping[str, Any]) -> None:
    """Writes BLESSED or NOT_BLESSED, and what TFX's Pusher and resolvers look for."""
    (model,) = input_dict[MODEL]
    blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    for baseline in input_dict.get(BASELINE) or ():
        blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY, baseline.uri)
        blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY, baseline.id)
    if "current_component_id" in exec_properties:
        blessing.set_string_custom_property("component_id", exec_properties["current_component_id"])
    name = constants.BLESSED_FILE_NAME if is_good else constants.NOT_BLESSED_FILE_NAME
    files.write_bytes(files.join(blessing.uri, name), b"")
    value = constants.BLESSED_VALUE if is_good else constants.NOT_BLESSED_VALUE
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)
    _log.info("the model is %s: %s", "blessed" if is_good else "not blessed", blessing.uri)


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
    _write(folder, tfma_constants.METRICS_KEY, [tfma_writer.convert_slice_metrics_to_proto(one, []) for one in metrics])
    _write(folder, tfma_constants.PLOTS_KEY, [tfma_writer.convert_slice_plots_to_proto(one, []) for one in plots])
    empty = [tfma_writer.convert_slice_attributions_to_proto((key, {})) for key, _ in sliced]
    _write(folder, tfma_constants.ATTRIBUTIONS_KEY, empty)
    _write_records(files.join(folder, f"{tfma_constants.VALIDATIONS_KEY}.tfrecord"), [verdict])
    run = config_pb2.EvalRun(
        eval_config=eval_config,
        version=tfma.__version__,
        data_location="<user provided PCollection>",  # TFMA's words, for people: nobody reads it
        file_format="<unknown>",
        model_locations=locations,
    )
    files.write_bytes(
        files.join(folder, "eval_config.json"), f"{json_format.MessageToJson(run, sort_keys=True)}\n".encode()
    )
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
    payloads = pa.array([proto.SerializeToString(deterministic=True) for proto in protos], pa.large_binary())
    write_records(path, [frame_records(payloads)], gzip_level=None)


class Evaluator(tfx.components.Evaluator):
    """Measures a model on examples, slice by slice, compares it with a baseline, and blesses it if it is good enough.

        Evaluator(
            examples=example_gen.outputs["examples"],
            model=trainer.outputs["model"],
            baseline_model=resolver.outputs["model"],
            eval_config=eval_config,
        )

    The arguments and the outputs `evaluation` and `blessing` are those of TFX's Evaluator, and so are the numbers: TFMA
    says which metrics there are and how each follows from what is counted of the rows, which is counted here over
    batches of thousands.

    What is not counted here is left to TFX's own executor on Beam for the whole run, and the log says why: metrics of
    other kinds, confidence intervals, `query_key`, averages over classes, models with several outputs or without a
    signature that takes serialized tf.Examples, and functions in `module_file`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(EvaluatorExecutor)
