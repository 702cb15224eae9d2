"""Asks a blessed model about the Examples; leaves to TFX what only its own protos hold."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tfx import types
from tfx.components.util import model_utils
from tfx.proto import bulk_inferrer_pb2
from tfx.types import artifact_utils
from tfx.utils import json_utils, path_utils, proto_utils

from infeed.components import schema
from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions.options import PredictOptions
from infeed.components.evaluation.predictions.predict import write_predictions
from infeed.components.in_process_executor import Artifacts, InProcessExecutor, unread_format

EXAMPLES, MODEL, MODEL_BLESSING = "examples", "model", "model_blessing"
INFERENCE_RESULT, OUTPUT_EXAMPLES = "inference_result", "output_examples"
DATA_SPEC, MODEL_SPEC, OUTPUT_EXAMPLE_SPEC, OPTIONS = (
    "data_spec",
    "model_spec",
    "output_example_spec",
    "predict_options",
)
_PROTOS = {
    DATA_SPEC: bulk_inferrer_pb2.DataSpec,
    MODEL_SPEC: bulk_inferrer_pb2.ModelSpec,
    OUTPUT_EXAMPLE_SPEC: bulk_inferrer_pb2.OutputExampleSpec,
}
_PREDICT = "tensorflow/serving/predict"
_TFX_ALONE = ("examples", "prediction_log")  # formats that TFX's executor writes as well
_SERVED = "serve"  # the tag of what is served
_PAYLOADS = ("FORMAT_TF_EXAMPLE", "FORMAT_TF_SEQUENCE_EXAMPLE")  # the records that are read here
_log = logging.getLogger(__name__)


class BulkInferrerExecutor(InProcessExecutor):
    """Writes predictions, by the exec properties of TFX's BulkInferrer and by `predict_options`, a JSON object."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """As TFX calls it; a model that is not blessed is not asked.

        Raises:
          InfeedError: there is no model, or what `write_predictions` refuses.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        if not input_dict.get(MODEL):
            raise InfeedError("there is no model to ask", where="BulkInferrer", do="give it the `model` of a Trainer")
        if (blessing := input_dict.get(MODEL_BLESSING)) and not model_utils.is_model_blessed(blessing[0]):
            _log.warning("the model is not blessed, so there are no predictions: %s", blessing[0].uri)
            return
        model = artifact_utils.get_single_instance(input_dict[MODEL])
        path = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
        specs = {name: _proto(name, exec_properties.get(name)) for name in _PROTOS}
        options = options_of(specs, input_dict[EXAMPLES], exec_properties.get(OPTIONS))
        if reason := _beyond(specs, input_dict[EXAMPLES], path, options):
            self._leave(reason, options, input_dict, output_dict, exec_properties)
            return
        [key] = [name for name in (INFERENCE_RESULT, OUTPUT_EXAMPLES) if output_dict.get(name)]
        output = artifact_utils.get_single_instance(output_dict[key])
        write_predictions([artifact.uri for artifact in input_dict[EXAMPLES]], path, output.uri, options)
        if key == OUTPUT_EXAMPLES:
            output.split_names = artifact_utils.encode_split_names(sorted(options.splits or ()))
        else:
            output.set_string_custom_property("output_format", options.output_format)

    def _leave(self, reason: str, options: PredictOptions, *arguments: Any) -> None:
        if options.output_format not in _TFX_ALONE:
            do = "write output_format='prediction_log', which is then left to TFX's own executor"
            raise InfeedError(f"{options.output_format} cannot be written: {reason}", where="BulkInferrer", do=do)
        self.leave_to_tfx("bulk_inferrer", "predictions are made", reason, *arguments)


def _proto(name: str, text: str | None) -> Any:
    message = _PROTOS[name]()
    if text:
        proto_utils.json_to_proto(text, message)
    return message


def options_of(specs: Mapping[str, Any], examples: Sequence[types.Artifact], given: str | None) -> PredictOptions:
    """TFX's specs and the component's own options, as one.

    Raises:
      InfeedError: an option that does not exist or cannot be.
    """
    named = {split for artifact in examples for split in artifact_utils.decode_split_names(artifact.split_names or "")}
    plain: dict[str, Any] = {
        **json_utils.loads(given or "{}"),
        "splits": list(specs[DATA_SPEC].example_splits) or sorted(named) or None,
        "tags": list(specs[MODEL_SPEC].tag),
    }
    if specs[MODEL_SPEC].model_signature_name:
        plain["signature"] = specs[MODEL_SPEC].model_signature_name[0]
    if specs[OUTPUT_EXAMPLE_SPEC].output_columns_spec:
        columns = specs[OUTPUT_EXAMPLE_SPEC].output_columns_spec[0].predict_output.output_columns
        plain |= {"output_format": "examples", "outputs": {one.output_column: one.output_key for one in columns}}
    return schema.read(PredictOptions, plain, "BulkInferrer")


def _beyond(specs: Mapping[str, Any], examples: Sequence[types.Artifact], path: str, options: PredictOptions) -> str:
    """Why only TFX's own executor can do it; empty where ours can."""
    signatures = list(specs[MODEL_SPEC].model_signature_name)
    if len(signatures) > 1:
        return f"several signatures are asked, {', '.join(signatures)}"
    columns = specs[OUTPUT_EXAMPLE_SPEC].output_columns_spec
    if len(columns) > 1 or (columns and not options.outputs):
        return "output_example_spec names no outputs of one signature"
    if unread := unread_format(examples, _PAYLOADS):
        return unread
    method = _method(path, options) if options.output_format in _TFX_ALONE else ""
    return f"signature {options.signature!r} is of the method {method}" if method not in ("", _PREDICT) else ""


def _method(path: str, options: PredictOptions) -> str:
    """What a signature says that it does: predict, or the older classify and regress; empty where it is not there."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = files.join(path, "saved_model.pb")
    if not files.exists(saved):
        return ""
    graphs = saved_model_pb2.SavedModel.FromString(files.read_bytes(saved)).meta_graphs
    tags = set(options.tags or [_SERVED])
    of_tags = (graph.signature_def for graph in graphs if set(graph.meta_info_def.tags) == tags)
    methods = (found[options.signature].method_name for found in of_tags if options.signature in found)
    return next(methods, "")
