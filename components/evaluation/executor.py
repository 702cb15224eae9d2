"""Evaluates as TFX's Evaluator does, in batches and without Beam; leaves to TFX what only TFMA's code can do."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tfx.components  # noqa: F401 - before TFMA: the other order fails on TFX 1.21
from tfx import types
from tfx.components.evaluator import constants
from tfx.types import artifact_utils
from tfx.utils import json_utils, path_utils, proto_utils

# isort: split
import tensorflow_model_analysis as tfma

from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.evaluation.batch_columns import known_columns, read_batches
from infeed.components.evaluation.measuring import measure
from infeed.components.evaluation.metric_plan import MetricPlan
from infeed.components.evaluation.models import EvaluatedModel
from infeed.components.evaluation.pairs import BeyondError
from infeed.components.evaluation.results import write_results
from infeed.components.evaluation.slices import SliceSpec
from infeed.components.in_process_executor import Artifacts, InProcessExecutor, unread_format

EXAMPLES, MODEL, BASELINE, SCHEMA = "examples", "model", "baseline_model", "schema"
EVAL_CONFIG, SPLITS = "eval_config", "example_splits"
_MODULES = ("module_file", "module_path")
_log = logging.getLogger(__name__)


class EvaluatorExecutor(InProcessExecutor):
    """Writes TFMA's files and the blessing; TFX's own executor does it where only TFMA's code can."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """As TFX calls it."""
        self._log_startup(input_dict, output_dict, exec_properties)
        try:
            verdict = evaluate(input_dict, output_dict, exec_properties)
        except BeyondError as beyond:
            arguments = input_dict, output_dict, exec_properties
            self.leave_to_tfx("evaluator", "the model is evaluated", beyond, *arguments)
            return
        if verdict is not None:
            blessing = artifact_utils.get_single_instance(output_dict["blessing"])
            _bless(blessing, bool(verdict.validation_ok), input_dict, exec_properties)


def evaluate(input_dict: Artifacts, output_dict: Artifacts, exec_properties: Mapping[str, Any]) -> Any:
    """Writes the evaluation.

    Returns:
      TFMA's ValidationResult; None where the eval config has no thresholds, so that nothing is blessed.

    Raises:
      BeyondError: what only TFX's own executor can do; nothing is written.
      InfeedError: wrong input, with what, where and what to do.
    """
    eval_config = _eval_config(input_dict, exec_properties)
    if unread := unread_format(input_dict[EXAMPLES]):
        raise BeyondError(unread)
    plan = MetricPlan.of(eval_config)
    specs = [SliceSpec.of(spec) for spec in eval_config.slicing_specs] or [SliceSpec((), ())]
    folders = _folders(input_dict[EXAMPLES], exec_properties)
    options = eval_config.options
    default_metrics = not options.HasField("include_default_metrics") or options.include_default_metrics.value
    models = [
        EvaluatedModel(spec, _path(input_dict, spec), default_metrics=default_metrics)
        for spec in sorted(eval_config.model_specs, key=lambda spec: bool(spec.is_baseline))
    ]
    known = set[str]().union(*(known_columns(artifact.uri) for artifact in input_dict[EXAMPLES]))
    sliced = measure(plan, specs, models, read_batches(folders), known)
    target = artifact_utils.get_single_uri(output_dict[constants.EVALUATION_KEY])
    verdict = write_results(target, eval_config, {model.spec.name: model.path for model in models}, sliced)
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
