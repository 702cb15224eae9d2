"""Evaluator with the interface of TFX's, and its executor, which evaluates batches on an engine."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tfx.components  # before TFMA, because the other order fails on TFX 1.21
from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.types.component_spec import ExecutionParameter
from tfx.types.standard_component_specs import EvaluatorSpec as TfxEvaluatorSpec
from tfx.utils import json_utils, path_utils, proto_utils

# isort: split
from tensorflow_model_analysis.proto.config_pb2 import EvalConfig

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import read, to_plain
from infeed.components.dataset import files
from infeed.components.engine.choice import Cluster
from infeed.components.engine.executor import Artifacts, EngineExecutor, unread_format
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.pairs import BeyondError
from infeed.components.seams import tfma as tfma_seam

EVAL_CONFIG, EXAMPLES, MODEL, BASELINE, SCHEMA = "eval_config", "examples", "model", "baseline_model", "schema"
SPLITS, MODEL_REPORT = "example_splits", "model_report"
_log = logging.getLogger(__name__)


class EvaluatorExecutor(EngineExecutor):
    """Executor that writes TFMA's files and the blessing.

    Falls back to TFX's executor for what only TFMA can compute.
    """

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
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
    input_dict: Artifacts, output_dict: Artifacts, exec_properties: Mapping[str, Any], cluster: Cluster | None = None
) -> Any:
    """Evaluate by the artifacts and exec properties of TFX's executor; see `evaluate.evaluate`.

    Raise BeyondError, and write nothing, if only TFX's own executor can do this.
    """
    if reason := tfma_seam.EVALUATION.available():
        raise BeyondError(reason)
    # Imported late, because it imports the names of the seam.
    from infeed.components.evaluation import evaluate as plain

    if not exec_properties.get(EVAL_CONFIG):
        raise BeyondError("there is no eval_config, only slices of an estimator (feature_slicing_spec)")
    for name in ("module_file", "module_path"):
        if exec_properties.get(name):
            raise BeyondError(f"{name} has functions of its own")
    if not input_dict.get(MODEL):
        raise BeyondError("there is no model: the examples contain the predictions")
    config = proto_utils.json_to_proto(exec_properties[EVAL_CONFIG], EvalConfig())
    eval_config = plain.completed(config, has_baseline=bool(input_dict.get(BASELINE)))
    if unread := unread_format(input_dict[EXAMPLES]):
        raise BeyondError(unread)
    folders = _folders(input_dict[EXAMPLES], exec_properties)
    roots = [artifact.uri for artifact in input_dict[EXAMPLES]]
    models = {}
    for spec in eval_config.model_specs:
        model = artifact_utils.get_single_instance(input_dict[BASELINE if spec.is_baseline else MODEL])
        path = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
        models[spec.is_baseline] = files.join(path)
    output = artifact_utils.get_single_uri(output_dict[constants.EVALUATION_KEY])
    given = exec_properties.get(MODEL_REPORT)
    reports = [read(ModelReport, one, MODEL_REPORT) for one in json.loads(given)] if given else []
    return plain.evaluate(eval_config, roots, folders, models, output, cluster, reports)


def _folders(examples: Sequence[types.Artifact], exec_properties: Mapping[str, Any]) -> list[str]:
    """Return the folders of the splits to evaluate. Raise InfeedError if a split does not exist."""
    asked = json_utils.loads(exec_properties.get(SPLITS) or "null") or ["eval"]
    there = {name for artifact in examples for name in artifact_utils.decode_split_names(artifact.split_names)}
    for split in asked:
        if split not in there:
            do = f"use {' or '.join(sorted(there)) or 'examples that have splits'}"
            raise InfeedError(f"there is no split {split!r}", where=f"Evaluator, {SPLITS}", do=do)
    return [uri for split in asked for uri in artifact_utils.get_split_uris(list(examples), split)]


def _bless(blessing: types.Artifact, is_good: bool, input_dict: Artifacts, exec_properties: Mapping[str, Any]) -> None:
    """Write BLESSED or NOT_BLESSED, and the properties that TFX's Pusher and resolvers read."""
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


class EvaluatorSpec(TfxEvaluatorSpec):
    """Inputs, outputs and parameters of TFX's Evaluator, and the options of model reports as a JSON list."""

    PARAMETERS = {**TfxEvaluatorSpec.PARAMETERS, MODEL_REPORT: ExecutionParameter(type=str, optional=True)}


class Evaluator(tfx.components.Evaluator):
    """Evaluates a model on slices of examples, compares it with a baseline, and blesses it if it meets the thresholds.

        Evaluator(
            examples=example_gen.outputs["examples"],
            model=trainer.outputs["model"],
            baseline_model=resolver.outputs["model"],
            eval_config=eval_config,
        )

    Arguments, outputs (`evaluation` and `blessing`) and numbers are those of TFX's Evaluator. TFMA defines the metrics
    and derives them from counts; this component computes the counts, in batches of thousands of rows.

    If this component cannot compute a metric, TFX's own executor evaluates on Beam, and the log gives the reason. This
    applies to other kinds of metrics, confidence intervals, `query_key`, averages over classes, models without a
    signature for serialized tf.Examples, and functions in `module_file`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(EvaluatorExecutor)

    def __init__(
        self,
        examples: Any,
        model: Any = None,
        baseline_model: Any = None,
        feature_slicing_spec: Any = None,
        fairness_indicator_thresholds: Any = None,
        example_splits: list[str] | None = None,
        eval_config: Any = None,
        schema: Any = None,
        module_file: str | None = None,
        module_path: str | None = None,
        *,
        model_report: ModelReport | Sequence[ModelReport] | None = None,
    ) -> None:
        """Create the component with the arguments of TFX's Evaluator, and optionally the options of a model report.

        A model with several outputs has a report for each. The first one decides about `beat_guess`.
        """
        super().__init__(
            examples,
            model,
            baseline_model,
            feature_slicing_spec,
            fairness_indicator_thresholds,
            example_splits,
            eval_config,
            schema,
            module_file,
            module_path,
        )
        if model_report:
            made: Any = self.spec  # type: ignore[has-type]
            given = {**made.inputs, **made.outputs, **made.exec_properties}
            reports = [model_report] if isinstance(model_report, ModelReport) else model_report
            given[MODEL_REPORT] = json.dumps([to_plain(one) for one in reports], sort_keys=True)
            self.spec = EvaluatorSpec(**given)
