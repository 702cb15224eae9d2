"""BulkInferrer: TFX's component, argument for argument, with keys and columns beside the predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tfx.components
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import bulk_inferrer_pb2
from tfx.types import BaseChannel
from tfx.utils import json_utils

from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions import executor
from infeed.components.evaluation.predictions.options import OutputFormat, PredictOptions

_OURS = ("keys", "columns", "outputs", "output_format", "batch_size")


class BulkInferrer(tfx.components.BulkInferrer):
    """Asks a model about all Examples, and writes its answers beside the columns that say of which rows they are.

        BulkInferrer(
            examples=new_rows.outputs["examples"],
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            keys=["id"],
        )

    Output `inference_result`: with `keys`, `columns` or `outputs` Parquet, one file for each shard of the Examples,
    `Split-NAME/predictions-00000-of-00012.parquet`; without them what TFX's component writes; or what `output_format`
    says. With `output_example_spec` there is `output_examples` in its place, as in TFX. A model that is not blessed is
    not asked, and nothing is written.

    The model is loaded once, without Beam and without a session; memory is bounded by the batch. TFX's own executor is
    left with protos of several signatures at once and of the methods classify and regress, and the log says so.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.BulkInferrerExecutor)

    def __init__(
        self,
        examples: BaseChannel,
        model: BaseChannel | None = None,
        model_blessing: BaseChannel | None = None,
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
        """
        Args:
          examples: Examples, whoever wrote them.
          model: a Model.
          model_blessing: what Evaluator says of it; without one it is asked in any case.
          data_spec: splits; all where it names none.
          model_spec: the signature, and tags of the graph in the saved model.
          output_example_spec: writes the examples with outputs as further features instead.
          signature: in place of `model_spec`; "serving_default" where neither names one. It takes serialized
            tf.Examples, or one tensor for each feature, [batch] or [batch, ...], by the features' names.
          keys: columns of the Examples that say which row it is; they come first.
          columns: further columns of the Examples that go along.
          outputs: column -> the output of the model that is written there; all, by their own names, where left out.
          output_format: "parquet", the default with keys, columns or outputs; "tfrecord" of tf.Examples with the same;
            "prediction_log", the default without, TFX's proto in `prediction_logs-*.gz`.
          batch_size: most rows that the model is asked about at a time.

        Raises:
          InfeedError: options that cannot be or do not go together.
        """
        if output_example_spec:
            _check_alone(keys=keys, columns=columns, outputs=outputs, output_format=output_format)
        if output_format == "examples":
            do = "give output_example_spec, which makes the output `output_examples`"
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
        # Not in the component spec: TFX's constructor makes that itself, of the parameters that it knows.
        plain = {name: value for name, value in dataclasses.asdict(options).items() if name in _OURS}
        self.spec.exec_properties[executor.OPTIONS] = json_utils.dumps(plain)


def _as_tuple(names: Any) -> Any:
    """A text stays one, for PredictOptions to refuse: it is no list of its letters."""
    return names if isinstance(names, str) else tuple(names)


def _check_alone(**given: Any) -> None:
    """Raises InfeedError for options of ours beside `output_example_spec`, which says all that is written."""
    if named := [name for name, value in given.items() if value]:
        raise InfeedError(
            f"{' and '.join(named)} {'is' if len(named) == 1 else 'are'} given beside output_example_spec",
            where="BulkInferrer",
            do="leave it out: then the output is inference_result, with keys and columns; or leave out the others",
        )


def _with_signature(model_spec: Any, signature: str | None) -> Any:
    """The ModelSpec that asks for a signature.

    Raises:
      InfeedError: `model_spec` says so already, or cannot be added to.
    """
    if signature is None:
        return model_spec
    if isinstance(model_spec, RuntimeParameter) or (model_spec and model_spec.model_signature_name):
        raise InfeedError(
            f"signature is {signature!r}, and model_spec says which one as well",
            where="BulkInferrer",
            do="give one of them",
        )
    tags = model_spec.tag if model_spec else []
    return bulk_inferrer_pb2.ModelSpec(model_signature_name=[signature], tag=tags)
