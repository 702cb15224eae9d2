"""Features, applied to the rows that they are analyzed on; and a Transform's executor, run without a pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.transform.feature import Feature


@pytest.fixture(scope="session")
def transform(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, np.ndarray]]:
    """transform({"x": [1, None, 3]}, [Fill("x", 0)]) -> {"x": [[1], [0], [3]]}."""

    def transformed(
        columns: Mapping[str, Sequence[Any]], features: Sequence[Feature], *, served: Mapping[str, Sequence[Any]] = {}
    ) -> dict[str, np.ndarray]:
        return _transformed(columns, features, served or columns, str(tmp_path_factory.mktemp("vocabularies")))

    return transformed


def _transformed(
    columns: Mapping[str, Sequence[Any]], features: Sequence[Feature], served: Mapping[str, Sequence[Any]], folder: str
) -> dict[str, np.ndarray]:
    """The features of the rows in `served`, with constants of `columns`, which are read in two batches."""
    import tensorflow as tf

    from infeed.components.transform.columns import TracedPass, analyze, outputs_of
    from infeed.components.transform.feature import Tables

    half = (len(next(iter(columns.values()))) + 1) // 2
    halves = [{name: column[part] for name, column in columns.items()} for part in (slice(half), slice(half, None))]
    batches = [_batch(part, columns) for part in halves if next(iter(part.values()))]
    found = analyze(features, lambda one: TracedPass(one).over(batches), {})
    tables = Tables(folder)
    apply = tf.function(lambda raw: outputs_of(features, raw, found, tables), autograph=False)
    return {
        name: np.array(value.to_list(), object) if isinstance(value, tf.RaggedTensor) else value.numpy()
        for name, value in apply(_batch(served, columns)).items()
    }


def _batch(part: Mapping[str, Sequence[Any]], columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Rows as sparse tensors, typed by all of `columns`: None is a missing value, and a list is one."""
    import tensorflow as tf

    return {
        name: tf.ragged.constant([_listed(value) for value in column], _dtype(columns[name]), ragged_rank=1).to_sparse()
        for name, column in part.items()
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _dtype(column: Sequence[Any]) -> Any:
    import tensorflow as tf

    first = next(value for row in column for value in _listed(row))
    return {int: tf.int64, float: tf.float32, bytes: tf.string}[type(first)]


@pytest.fixture(scope="session")
def execute() -> Callable[..., dict[str, Path]]:
    return _execute


def _execute(
    kind: type,
    folder: Path,
    spans: Sequence[Mapping[str, Sequence[bytes]]],
    schema: str,
    *,
    data: Path | None = None,
    cache: Path | None = None,
    beam_pipeline_args: Sequence[str] = (),
    **options: Any,
) -> dict[str, Path]:
    """Runs the component that `options` make, its module packaged as a runner does it.

    Args:
      kind: the component's class, ours or TFX's.
      folder: where outputs go.
      spans: Examples, split -> records each.
      data: where they are written; default: below `folder`.
      cache: folder of a TransformCache.

    Returns:
      output -> its folder
    """
    from tfx.components.util import udf_utils
    from tfx.types import channel_utils, standard_artifacts

    data = data or folder / "data"
    examples = [_write_examples(data / str(number), splits) for number, splits in enumerate(spans)]
    inputs: dict[str, list[Any]] = {"examples": examples, "schema": [_write_schema(data / "schema", schema)]}
    if cache:
        inputs["analyzer_cache"] = [_at(standard_artifacts.TransformCache(), cache)]
    component = kind(**{name: channel_utils.as_channel(artifacts) for name, artifacts in inputs.items()}, **options)
    with pytest.MonkeyPatch.context() as patch:
        package = functools.partial(_packaged, udf_utils.package_user_module_file)
        patch.setattr(udf_utils, "package_user_module_file", package)
        component._resolve_pip_dependencies(str(folder / "root"))
    outputs = {name: [_at(channel.type(), folder / name)] for name, channel in component.outputs.items()}
    executor = component.executor_spec.executor_class
    context = executor.Context(beam_pipeline_args=[*beam_pipeline_args], tmp_dir=str(folder / "tmp"), unique_id="1")
    executor(context).Do(inputs, outputs, dict(component.exec_properties))
    return {name: folder / name for name in outputs}


_wheels: dict[tuple[str, str], tuple[str, str]] = {}


def _packaged(package: Callable[..., tuple[str, str]], name: str, module: str, root: str) -> tuple[str, str]:
    """TFX's wheel of a module file, which is made once for all runs: that takes pip two seconds."""
    if (name, module) not in _wheels:
        _wheels[name, module] = package(name, module, root)
    return _wheels[name, module]


def _at(artifact: Any, folder: Path) -> Any:
    artifact.uri = str(folder)
    return artifact


def _write_examples(folder: Path, splits: Mapping[str, Sequence[bytes]]) -> Any:
    import tensorflow as tf
    from tfx.types import artifact_utils, standard_artifacts

    artifact = _at(standard_artifacts.Examples(), folder)
    artifact.split_names = artifact_utils.encode_split_names(list(splits))
    for split, records in splits.items():
        (folder / f"Split-{split}").mkdir(parents=True, exist_ok=True)
        with tf.io.TFRecordWriter(str(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"), "GZIP") as writer:
            for record in records:
                writer.write(record)
    return artifact


def _write_schema(folder: Path, text: str) -> Any:
    from tfx.types import standard_artifacts

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.pbtxt").write_text(text)
    return _at(standard_artifacts.Schema(), folder)
