from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed import components

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

HELD = {"train": ("x", "first"), "eval": ("x", "second", "words"), "test": ("x", "last", "first")}


@pytest.fixture
def statistics(tmp_path: Path, write_examples: Callable[..., Any], execute: Callable[..., Any]) -> Any:
    """Of three splits, each with columns that another lacks."""

    values = {"x": [1.5, 2.5], "first": [1, 2], "second": [0.5, 1.5], "last": [7, 8], "words": ["a", "b"]}
    batches = {
        split: pa.RecordBatch.from_pydict({name: values[name] for name in columns}) for split, columns in HELD.items()
    }
    return execute(components.StatisticsGen, tmp_path / "statistics", write_examples(tmp_path / "examples", batches))


def parsing_spec(statistics: Any, folder: Path, **options: Any) -> dict[str, Any]:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tensorflow_transform.tf_metadata import schema_utils
    from tfx.types import channel_utils, standard_artifacts

    channel = channel_utils.as_channel([statistics])
    component = components.SchemaGen(statistics=channel, **options)
    output = standard_artifacts.Schema()
    output.uri = str(folder)
    component.executor_spec.executor_class().Do(
        {"statistics": [statistics]}, {"schema": [output]}, component.exec_properties
    )
    schema = text_format.Parse((folder / "schema.pbtxt").read_text(), schema_pb2.Schema())
    return dict(schema_utils.schema_as_feature_spec(schema).feature_spec)


def test_the_schema_has_the_columns_of_all_splits(statistics: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    assert parsing_spec(statistics, tmp_path / "schema", infer_feature_shape=True) == {
        "x": tf.io.FixedLenFeature([1], tf.float32),
        "first": tf.io.VarLenFeature(tf.int64),
        "second": tf.io.VarLenFeature(tf.float32),
        "last": tf.io.VarLenFeature(tf.int64),
        "words": tf.io.VarLenFeature(tf.string),
    }


def test_a_split_that_is_excluded_does_not_count(statistics: Any, tmp_path: Path) -> None:
    found = parsing_spec(statistics, tmp_path / "schema", infer_feature_shape=True, exclude_splits=["eval"])
    assert set(found) == {"x", "first", "last"}
