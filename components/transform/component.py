"""Transform component: converts raw examples to features, identically in training and serving."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tfx.components
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import data_types
from tfx.proto import transform_pb2
from tfx.types import BaseChannel

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.records import file_crc32c
from infeed.components.transform import executor
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import own_kinds


class Transform(tfx.components.Transform):
    """Applies declared features, your own preprocessing function, or both.

        Transform(
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            features=[ZScore("age"), Vocabulary("city", size=1000), Label("income")],
        )

    Without `features`, arguments, defaults and outputs are those of TFX's Transform. With `features`, it writes only
    requested outputs, because each output takes time on every run. None, the default of three switches, means

        switch                   without features   with features
        materialize              True               False
        disable_statistics       False              True, unless stats_options_updater_fn is given
        disable_analyzer_cache   False              True, unless analyzer_cache is given

    Outputs: `transform_graph`; `transformed_examples` if it materializes; `pre_transform_schema`,
        `pre_transform_stats`, `post_transform_schema`, `post_transform_stats` and `post_transform_anomalies` if it
        computes statistics; `updated_analyzer_cache` unless the cache is disabled. TFX's Trainer, Evaluator and
        BulkInferrer accept them.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.TransformExecutor)

    def __init__(
        self,
        examples: BaseChannel,
        schema: BaseChannel,
        module_file: str | data_types.RuntimeParameter | None = None,
        preprocessing_fn: str | data_types.RuntimeParameter | None = None,
        splits_config: transform_pb2.SplitsConfig | None = None,
        analyzer_cache: BaseChannel | None = None,
        materialize: bool | None = None,
        disable_analyzer_cache: bool | None = None,
        force_tf_compat_v1: bool = False,
        custom_config: Mapping[str, Any] | None = None,
        disable_statistics: bool | None = None,
        stats_options_updater_fn: str | None = None,
        *,
        features: Sequence[Feature] = (),
    ) -> None:
        """Create the component.

        Args:
          examples: Examples. Statistics come from the split "train" unless `splits_config` sets others.
          schema: Schema of the examples.
          module_file: Python file that defines `preprocessing_fn`, and optionally `stats_options_updater_fn`. TFX
              builds a wheel of all Python files in its folder, so it may import its neighbors, and installs the wheel
              three times. A `preprocessing_fn` starts some seconds faster.
          preprocessing_fn: `package.module.function`, `package.module:function` or `path/to/file.py:function`, as in
              tft: it maps a dict of raw tensors to a dict of features. They are added to `features`. An edited source
              invalidates the pipeline's cache.
          splits_config: splits to analyze and to transform, as in TFX.
          analyzer_cache: TransformCache of earlier runs. Its spans are not analyzed again.
          materialize: whether to write transformed examples. This pays only if training reads them for more than about
              four epochs and does not cache them in memory.
          disable_analyzer_cache: whether to skip writing a cache for later runs.
          force_tf_compat_v1: must be False.
          custom_config: passed to a `preprocessing_fn` or `stats_options_updater_fn` with a parameter of that name.
          disable_statistics: whether to skip statistics of raw and transformed data.
          stats_options_updater_fn: function, named as in `preprocessing_fn`, that changes the options of statistics.
          features: declared features. The content of files that they name is part of the cache key.

        Raises:
          InfeedError: there are neither features nor a function, feature names repeat, a function does not exist,
              arguments conflict, or `force_tf_compat_v1` is set.
        """
        _check(module_file, preprocessing_fn, stats_options_updater_fn, features, custom_config)
        _require(
            not force_tf_compat_v1,
            "force_tf_compat_v1 is True, but training and serving load a graph of TensorFlow 2",
            do="leave it out, and write the function with TensorFlow 2. For TensorFlow 1, use tfx.components.Transform",
        )
        _require(
            analyzer_cache is None or not disable_analyzer_cache,
            "analyzer_cache is set, but disable_analyzer_cache is True",
            do="leave one of them out",
        )
        digests = _digests(module_file, preprocessing_fn, stats_options_updater_fn, features)
        # Training applies declared features to raw rows, so what only materialized features need is off by default.
        lean = bool(features)
        super().__init__(
            examples=examples,
            schema=schema,
            module_file=module_file,
            preprocessing_fn=preprocessing_fn or (None if module_file else executor.EMPTY_PREPROCESSING_FN),
            splits_config=splits_config,
            analyzer_cache=analyzer_cache,
            materialize=_either(materialize, not lean),
            disable_analyzer_cache=_either(disable_analyzer_cache, lean and analyzer_cache is None),
            custom_config=executor.pack_config(features, custom_config, digests),
            disable_statistics=_either(disable_statistics, lean and stats_options_updater_fn is None),
            stats_options_updater_fn=stats_options_updater_fn,
        )


def _either(given: bool | None, default: bool) -> bool:
    return default if given is None else given


def _digests(
    module_file: Any, preprocessing_fn: Any, stats_options_updater_fn: Any, features: Sequence[Feature]
) -> dict[str, str]:
    """Map options to digests of their sources, and files to checksums. RuntimeParameters and remote files have none."""
    named = {
        "module_file": f"{module_file}:preprocessing_fn" if _is_local(module_file) else None,
        "preprocessing_fn": preprocessing_fn,
        "stats_options_updater_fn": stats_options_updater_fn,
    }
    named |= {kind: kind for kind in own_kinds(features)}
    digests = {option: user_code.digest(text, option) for option, text in named.items() if isinstance(text, str)}
    paths = sorted({path for feature in features for path in feature.files if _is_local(path) and os.path.exists(path)})
    return digests | {path: file_crc32c(path) for path in paths}


def _is_local(path: Any) -> bool:
    return isinstance(path, str) and "://" not in path


def _check(
    module_file: Any, preprocessing_fn: Any, updater: Any, features: Sequence[Feature], custom_config: Any
) -> None:
    _require(
        features or preprocessing_fn or module_file,
        "Transform has no features and no function",
        where="options features, preprocessing_fn and module_file",
        do="set a list of features, a preprocessing function, or both",
    )
    _require(
        not (module_file and preprocessing_fn),
        "module_file and preprocessing_fn are both set",
        do="set only one of them",
    )
    _require(
        not (module_file and updater),
        "stats_options_updater_fn is set together with module_file",
        do="define stats_options_updater_fn in the module file, or replace module_file by preprocessing_fn",
    )
    _require(
        not isinstance(module_file, str) or module_file.endswith(".py"),
        f"module_file is {module_file!r}, which is not a Python file",
        do="use the path of a .py file, or name a function in preprocessing_fn",
    )
    _require(
        not custom_config or preprocessing_fn or module_file or updater,
        "custom_config is set, but no preprocessing_fn accepts it",
        do="use a preprocessing_fn(inputs, custom_config), or leave out custom_config",
    )


def _require(holds: Any, what: str, *, do: str, where: str = "Transform") -> None:
    if not holds:
        raise InfeedError(what, where=where, do=do)
