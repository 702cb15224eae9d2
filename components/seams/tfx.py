"""TFX: hooks of its executors, and classes that its modules look up at run time."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from infeed.components.seams.seam import Seam

_EXECUTOR = "tfx.components.transform.executor"
_VERSIONS = ("1.16.0", "1.21.0")
TRANSFORM = Seam(
    "tfx",
    "data processing of TFX's Transform on our engine",
    (
        f"{_EXECUTOR}:TransformProcessor._RunBeamImpl(analyze_data_list, transform_data_list, preprocessing_fn, "
        "stats_options_updater_fn, force_tf_compat_v1, save_options, input_dataset_metadata, transform_output_path, "
        "raw_examples_data_format, temp_path, input_cache_dir, output_cache_dir, disable_statistics, "
        "per_set_stats_output_paths, materialization_format, analyze_paths_count, stats_output_paths, "
        "make_beam_pipeline_fn)",
        f"{_EXECUTOR}:TransformProcessor.Transform(inputs, outputs, status_file)",
        f"{_EXECUTOR}:TransformProcessor._CreateTFXIO(dataset, schema)",
        f"{_EXECUTOR}:_InvokeStatsOptionsUpdaterFn(stats_options_updater_fn, stats_type, schema, asset_map, "
        "transform_output_path)",
        f"{_EXECUTOR}:tft.get_analyze_input_columns(preprocessing_fn, specs, force_tf_compat_v1)",
    ),
    _VERSIONS,
    "TFX's own executor analyzes and transforms on Beam",
)
USER_FUNCTIONS = Seam(
    "tfx",
    "names of Transform's user functions as this package writes them",
    (
        f"{_EXECUTOR}:Executor._GetPreprocessingFn(inputs, unused_outputs)",
        f"{_EXECUTOR}:Executor._GetStatsOptionsUpdaterFn(inputs)",
    ),
    _VERSIONS,
    "TFX looks up the functions of Transform, so they need a module_file or a dotted name",
)
FN_ARGS = Seam(
    "tfx",
    "the feed of a user's run_fn",
    ("tfx.components.trainer.executor:GenericExecutor._GetFnArgs(input_dict, output_dict, exec_properties)",),
    _VERSIONS,
    "TFX's own reader feeds the run_fn, and the wait for data is not measured",
)
BEAM_OPTIONS = Seam(
    "tfx",
    "Beam's options of a running executor",
    ("tfx.dsl.components.base.base_beam_executor:BaseBeamExecutor@_beam_pipeline_args",),
    _VERSIONS,
    "workers of a distributed runner do not get the user's modules",
)
FILESYSTEMS = Seam(
    "tfx",
    "file systems for s3:// and minio:// in TFX's own components",
    ("tfx.dsl.io.filesystem_registry:DEFAULT_FILESYSTEM_REGISTRY.register(filesystem_cls, priority, use_as_fallback)",),
    _VERSIONS,
    "TFX's own components, such as Pusher, cannot open s3:// and minio:// paths",
)
VALUES = Seam(
    "tfx",
    "values as inputs of components on Kubeflow",
    ("tfx.types.value_artifact:ValueArtifact.read()", "tfx.types.value_artifact:ValueArtifact.value.fset"),
    _VERSIONS,
    "components whose inputs are values fail: TFX reads them only in local runs",
)
Arguments = Mapping[str, Any]
_patched = threading.RLock()  # one Transform at a time, because TFX looks its processor up in a module


@contextmanager
def transform_by(
    run: Callable[[Arguments, Callable[..., Any]], None],
    guard: Callable[[Arguments], AbstractContextManager[None]],
    columns_of: Callable[[Arguments, Callable[..., Any], Arguments], list[str]],
) -> Iterator[None]:
    """Replace the data processing of TFX's Transform by `run`. TFX has no argument that names its processor.

    Args:
      run: receives the arguments of TFX's `_RunBeamImpl` by name, and TFX's function.
      guard: returns a context for TFX's preparation and `run`. It receives the inputs of TFX's `Transform`.
      columns_of: returns the columns that an analysis depends on. TFX calls it before `run`, with the outputs of TFX's
        `Transform`, the preprocessing function, and the type of each column.
    """
    from tfx.components.transform import executor

    own, tft = executor.TransformProcessor, executor.tft

    class Processor(own):  # type: ignore[misc, valid-type]
        def Transform(self, inputs: Arguments, outputs: Arguments, *more: Any) -> None:  # noqa: N802 - TFX's name
            executor.tft = _Tft(tft, partial(columns_of, outputs))
            with guard(inputs):
                super().Transform(inputs, outputs, *more)

        def _CreateTFXIO(self, dataset: Any, schema: Any) -> Any:  # noqa: N802 - TFX's name
            return super()._CreateTFXIO(dataset, _with_all_tensors(schema))

        def _RunBeamImpl(self, *arguments: Any, **named: Any) -> None:  # noqa: N802 - TFX's name
            executor.tft = tft
            on_beam = super()._RunBeamImpl
            run(inspect.signature(on_beam).bind(*arguments, **named).arguments, on_beam)

    with _patched:
        executor.TransformProcessor = Processor
        try:
            yield
        finally:
            executor.TransformProcessor, executor.tft = own, tft


def _with_all_tensors(schema: Any) -> Any:
    """Add tensor representations of the features that lack them, because tfx_bsl projects only features that have one.

    A schema without any is returned as it is.
    """
    from tfx_bsl.tfxio import tensor_representation_util as tensors

    if not schema.tensor_representation_group:
        return schema
    whole = type(schema)()
    whole.CopyFrom(schema)
    tensors.SetTensorRepresentationsInSchema(whole, tensors.InferTensorRepresentationsFromMixedSchema(schema))
    return whole


class _Tft:
    """Proxy of the module tft for TFX's executor, which finds the columns of an analysis by `columns_of`."""

    def __init__(self, tft: Any, columns_of: Callable[[Callable[..., Any], Arguments], list[str]]) -> None:
        self._tft, self._columns_of = tft, columns_of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tft, name)

    def get_analyze_input_columns(
        self, preprocessing_fn: Callable[..., Any], specs: Arguments, force_tf_compat_v1: bool = False
    ) -> Any:
        if force_tf_compat_v1:
            return self._tft.get_analyze_input_columns(preprocessing_fn, specs, force_tf_compat_v1)
        return self._columns_of(preprocessing_fn, specs)


def stats_options(update: Callable[..., Any], kind: Any, schema: Any, *paths: Any) -> Any:
    """Return the options of Transform's statistics, changed by the user's function."""
    from tfx.components.transform import executor

    return executor._InvokeStatsOptionsUpdaterFn(update, kind, schema, *paths)


Find = Callable[[Arguments], Any]


def find_functions_by(
    executor: Any, preprocessing: Callable[[Arguments, Find], Any], statistics: Callable[[Arguments, Find], Any]
) -> None:
    """Make an executor of Transform find the user's functions by `preprocessing` and `statistics`.

    Both receive TFX's inputs of the executor, and TFX's own function that finds the user's function from inputs.
    """
    own_preprocessing, own_statistics = executor._GetPreprocessingFn, executor._GetStatsOptionsUpdaterFn
    executor._GetPreprocessingFn = lambda inputs, outputs: preprocessing(
        inputs, lambda given: own_preprocessing(given, outputs)
    )
    executor._GetStatsOptionsUpdaterFn = lambda inputs: statistics(inputs, own_statistics)


def when_fn_args_exist(executor: Any, then: Callable[[Any], None]) -> None:
    """Make an executor of the Trainer call `then` with its FnArgs before it calls `run_fn`."""
    own = executor._GetFnArgs

    def get_fn_args(*arguments: Any, **named: Any) -> Any:
        fn_args = own(*arguments, **named)
        then(fn_args)
        return fn_args

    executor._GetFnArgs = get_fn_args


def beam_options(executor: Any) -> list[str]:
    """Return Beam's options of an executor: its arguments, TFX's labels, and the modules that `Do` has added."""
    return executor._beam_pipeline_args  # type: ignore[no-any-return]


def add_filesystem(filesystem: type, priority: int) -> None:
    """Register a file system for its schemes. The lowest priority wins; TensorFlow has 10."""
    if FILESYSTEMS.usable():
        from tfx.dsl.io import filesystem_registry

        filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(filesystem, priority=priority)


def read_values() -> None:
    """Have an artifact of a value read its file when an executor uses the value."""
    if VALUES.usable():
        from tfx.types.value_artifact import ValueArtifact

        ValueArtifact.value = property(ValueArtifact.read, ValueArtifact.value.fset)


def result_message(execution: Any) -> str:
    """Return the message that TFX recorded for a failed execution in ML Metadata. Empty if there is none."""
    recorded = execution.custom_properties["__execution_result__"].string_value
    return str(json.loads(recorded)["resultMessage"]) if recorded else ""
