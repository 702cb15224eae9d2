"""Transform: raw examples to features, the same in training and in serving."""

from __future__ import annotations

from collections.abc import Sequence

import tfx.components
from tfx.proto import transform_pb2
from tfx.types import BaseChannel

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.transform.features import Feature, features_to_json

_PREPROCESSING_FN = "infeed.components.transform.preprocessing.preprocessing_fn"


class Transform(tfx.components.Transform):
    """Applies a list of declared features, a preprocessing function of your own, or both.

        Transform(
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            features=[ZScore("age"), Vocabulary("city", size=1000), Label("income")],
        )

    Outputs: `transform_graph`, and `transformed_examples` with `materialize=True`. They are what TFX's own component
    gives: its Trainer, Evaluator and BulkInferrer take them as they are.
    """

    def __init__(
        self,
        examples: BaseChannel,
        schema: BaseChannel,
        *,
        features: Sequence[Feature] = (),
        preprocessing_fn: str | None = None,
        materialize: bool = False,
        splits_config: transform_pb2.SplitsConfig | None = None,
    ) -> None:
        """
        Args:
          examples: Examples; statistics come from the split "train" unless `splits_config` says otherwise.
          schema: their Schema.
          features: what becomes of which column.
          preprocessing_fn: `package.module:function` or `path/to/file.py:function`, a function as tft has it: a dict of
            raw tensors in, a dict of features out, which join those of `features`. An edited source is run again, not
            taken from the pipeline's cache.
          materialize: also write transformed examples. It pays only where training reads them for more than about four
            epochs and does not keep them in memory.
          splits_config: splits to analyse and to transform, as TFX has it.

        Raises:
          InfeedError: neither features nor a function, two features of one name, or a function that does not exist.
        """
        if not features and not preprocessing_fn:
            raise InfeedError(
                "Transform has nothing to do",
                where="options features and preprocessing_fn",
                do="give a list of features, a preprocessing function, or both",
            )
        config = {"features": features_to_json(features), "preprocessing_fn": preprocessing_fn}
        if preprocessing_fn:
            config["digest"] = user_code.digest(preprocessing_fn, "preprocessing_fn")
        super().__init__(
            examples=examples,
            schema=schema,
            # By dotted path: a module_file becomes a wheel that is installed three times.
            preprocessing_fn=_PREPROCESSING_FN,
            custom_config=config,
            materialize=materialize,
            splits_config=splits_config,
            # StatisticsGen has measured the raw data; the transformed data has no schema to be compared with.
            disable_statistics=True,
            # The cache costs extra stages on every run and is read only by pipelines over several spans.
            disable_analyzer_cache=True,
        )
