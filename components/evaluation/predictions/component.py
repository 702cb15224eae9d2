"""BulkInferrer with the interface of TFX's, which can also write keys and columns next to predictions."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tfx.components
from tfx import types
from tfx.components.util import model_utils
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import bulk_inferrer_pb2
from tfx.types import artifact_utils
from tfx.utils import json_utils, path_utils, proto_utils

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine.executor import Artifacts, EngineExecutor, unread_format
from infeed.components.evaluation.predictions.layout import OutputFormat, PredictOptions
from infeed.components.evaluation.predictions.predict import write_predictions

EXAMPLES, MODEL, MODEL_BLESSING = "examples", "model", "model_blessing"
INFERENCE_RESULT, OUTPUT_EXAMPLES = "inference_result", "output_examples"
DATA_SPEC, MODEL_SPEC, OUTPUT_EXAMPLE_SPEC = "data_spec", "model_spec", "output_example_spec"
OPTIONS = "predict_options"
_PROTOS = {
    DATA_SPEC: bulk_inferrer_pb2.DataSpec,
    MODEL_SPEC: bulk_inferrer_pb2.ModelSpec,
    OUTPUT_EXAMPLE_SPEC: bulk_inferrer_pb2.OutputExampleSpec,
}
_TFX_ALONE = ("examples", "prediction_log")  # formats that TFX's executor also writes
_OURS = ("keys", "columns", "outputs", "output_format", "batch_size")  # options in addition to TFX's
_log = logging.getLogger(__name__)


class BulkInferrerExecutor(EngineExecutor):
    """Executor that writes predictions by the exec properties of TFX's BulkInferrer and the JSON `predict_options`."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Write predictions unless the model is not blessed. Raises the errors of `write_predictions`."""
        if not input_dict.get(MODEL):
            raise InfeedError("there is no model", where="BulkInferrer", do="pass the `model` of a Trainer")
        if (blessing := input_dict.get(MODEL_BLESSING)) and not model_utils.is_model_blessed(blessing[0]):
            _log.warning("no predictions, because the model is not blessed: %s", blessing[0].uri)
            return
        model = artifact_utils.get_single_instance(input_dict[MODEL])
        path = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
        specs = {name: proto() for name, proto in _PROTOS.items()}
        for name, spec in specs.items():
            if text := exec_properties.get(name):
                proto_utils.json_to_proto(text, spec)
        options = options_of(specs, input_dict[EXAMPLES], exec_properties.get(OPTIONS))
        if reason := _why_unsupported(specs, input_dict[EXAMPLES], path, options):
            # TFX's executor writes no other formats.
            if options.output_format not in _TFX_ALONE:
                do = "use output_format='prediction_log', for which TFX's own executor is used"
                what = f"{options.output_format} cannot be written: {reason}"
                raise InfeedError(what, where="BulkInferrer", do=do)
            given = input_dict, output_dict, exec_properties
            self.leave_to_tfx("bulk_inferrer", "predictions are made", reason, *given)
            return
        [key] = [name for name in (INFERENCE_RESULT, OUTPUT_EXAMPLES) if output_dict.get(name)]
        output = artifact_utils.get_single_instance(output_dict[key])
        examples = [artifact.uri for artifact in input_dict[EXAMPLES]]
        write_predictions(examples, path, output.uri, options, self.cluster(output))
        if key == OUTPUT_EXAMPLES:
            output.split_names = artifact_utils.encode_split_names(sorted(options.splits or ()))
        else:
            output.set_string_custom_property("output_format", options.output_format)


def options_of(specs: Mapping[str, Any], examples: Sequence[types.Artifact], given: str | None) -> PredictOptions:
    """Merge TFX's specs and the component's own options. Raise InfeedError for an invalid option."""
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


def _why_unsupported(
    specs: Mapping[str, Any], examples: Sequence[types.Artifact], path: str, options: PredictOptions
) -> str:
    """Return why only TFX's own executor can do the work. Empty if ours can."""
    signatures = list(specs[MODEL_SPEC].model_signature_name)
    if len(signatures) > 1:
        return f"several signatures are requested: {', '.join(signatures)}"
    columns = specs[OUTPUT_EXAMPLE_SPEC].output_columns_spec
    if len(columns) > 1 or (columns and not options.outputs):
        return "output_example_spec does not specify outputs of one signature"
    if unread := unread_format(examples, ("FORMAT_TF_EXAMPLE", "FORMAT_TF_SEQUENCE_EXAMPLE")):
        return unread
    method = _method(path, options) if options.output_format in _TFX_ALONE else ""
    is_predict = method in ("", "tensorflow/serving/predict")
    return "" if is_predict else f"signature {options.signature!r} has the method {method}"


def _method(path: str, options: PredictOptions) -> str:
    """Return the method of a signature: predict, classify or regress. Empty if the signature does not exist."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = files.join(path, "saved_model.pb")
    if not files.exists(saved):
        return ""
    graphs = saved_model_pb2.SavedModel.FromString(files.read_bytes(saved)).meta_graphs
    tags = set(options.tags or ["serve"])
    of_tags = (graph.signature_def for graph in graphs if set(graph.meta_info_def.tags) == tags)
    methods = (found[options.signature].method_name for found in of_tags if options.signature in found)
    return next(methods, "")


class BulkInferrer(tfx.components.BulkInferrer):
    """Applies a model to all Examples, and writes its outputs next to columns that identify the rows.

        BulkInferrer(
            examples=new_rows.outputs["examples"],
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            keys=["id"],
        )

    Output `inference_result`: with `keys`, `columns` or `outputs`, Parquet with one file per shard of the Examples,
    `Split-NAME/predictions-00000-of-00012.parquet`. Without them, the files of TFX's component. `output_format`
    overrides this. With `output_example_spec`, the output is `output_examples`, as in TFX. If the model is not
    blessed, nothing is written.

    Each worker loads the model once, and memory depends only on the batch. For several signatures at once and the
    methods classify and regress, TFX's own executor runs, and the log gives the reason.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(BulkInferrerExecutor)

    def __init__(
        self,
        examples: types.BaseChannel,
        model: types.BaseChannel | None = None,
        model_blessing: types.BaseChannel | None = None,
        data_spec: bulk_inferrer_pb2.DataSpec | RuntimeParameter | None = None,
        model_spec: bulk_inferrer_pb2.ModelSpec | RuntimeParameter | None = None,
        output_example_spec: bulk_inferrer_pb2.OutputExampleSpec | RuntimeParameter | None = None,
        *,
        signature: str | None = None,
        keys: Sequence[str] = (),
        columns: Sequence[str] = (),
        outputs: Mapping[str, str] | None = None,
        output_format: OutputFormat | None = None,
        batch_size: int = PredictOptions.batch_size,
    ) -> None:
        """Create the component.

        Args:
          examples: Examples of any writer.
          model_blessing: blessing of an Evaluator. Without it, the model is always applied.
          data_spec: splits to read. Defaults to all.
          model_spec: signature and tags of the saved model.
          output_example_spec: if set, write examples with outputs as additional features.
          signature: signature of the model, alternative to `model_spec`. Defaults to "serving_default". It takes
              serialized tf.Examples, or one tensor per feature, [batch] or [batch, ...], by feature name.
          keys: columns of the Examples that identify rows. They come first.
          columns: additional columns of the Examples to copy.
          outputs: column -> output of the model. Defaults to all outputs under their own names.
          output_format: "parquet", the default with keys, columns or outputs; "tfrecord" for tf.Examples with the same
            columns; "prediction_log", the default otherwise, for TFX's proto in `prediction_logs-*.gz`.
          batch_size: maximum number of rows of a batch.

        Raises:
          InfeedError: an option is invalid or conflicts with another.
        """
        ours = {"keys": keys, "columns": columns, "outputs": outputs, "output_format": output_format}
        named = [name for name, value in ours.items() if value]
        if output_example_spec and named:  # it defines the whole output
            what = f"{' and '.join(named)} {'is' if len(named) == 1 else 'are'} given beside output_example_spec"
            do = (
                "leave out output_example_spec to write inference_result with keys and columns, or leave out the others"
            )
            raise InfeedError(what, where="BulkInferrer", do=do)
        if output_format == "examples":
            do = "set output_example_spec, which creates the output `output_examples`"
            raise InfeedError("output_format is 'examples'", where="BulkInferrer", do=do)
        of_columns = keys or columns or outputs
        options = PredictOptions(
            keys=_as_tuple(keys),
            columns=_as_tuple(columns),
            outputs=dict(outputs or {}),
            output_format=output_format or ("parquet" if of_columns else "prediction_log"),
            batch_size=batch_size,
        )
        super().__init__(
            examples=examples,
            model=model,
            model_blessing=model_blessing,
            data_spec=data_spec,
            model_spec=_with_signature(model_spec, signature),
            output_example_spec=output_example_spec,
        )
        # Not in the component spec: TFX's constructor creates it from the parameters that it knows.
        plain = {name: value for name, value in dataclasses.asdict(options).items() if name in _OURS}
        self.spec.exec_properties[OPTIONS] = json_utils.dumps(plain)


def _as_tuple(names: Any) -> Any:
    """Keep a string unchanged, so that PredictOptions rejects it. It is not a list of letters."""
    return names if isinstance(names, str) else tuple(names)


def _with_signature(model_spec: Any, signature: str | None) -> Any:
    """Add the signature to a ModelSpec. Raise InfeedError if it already has one, or cannot be changed."""
    if signature is None:
        return model_spec
    if isinstance(model_spec, RuntimeParameter) or (model_spec and model_spec.model_signature_name):
        what = f"signature is {signature!r}, but model_spec also sets a signature"
        raise InfeedError(what, where="BulkInferrer", do="set only one of them")
    tags = model_spec.tag if model_spec else []
    return bulk_inferrer_pb2.ModelSpec(model_signature_name=[signature], tag=tags)
