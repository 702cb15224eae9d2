"""ExampleValidator writes what TFX's writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


@pytest.mark.parametrize("given", [{}, {"exclude_splits": ["eval"]}])
def test_the_anomalies_and_the_properties_are_those_of_tfx(
    tmp_path: Path, write_examples: Callable[..., Any], execute: Callable[..., Any], given: dict[str, Any]
) -> None:
    import tfx.components
    from tensorflow_metadata.proto.v0 import anomalies_pb2
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components import ExampleValidator, SchemaGen, StatisticsGen

    batches = {
        "train": pa.RecordBatch.from_pydict({"x": [1, 2, 3], "word": ["a", "b", "a"]}),
        "eval": pa.RecordBatch.from_pydict({"x": [1, 2, 3], "word": ["a", "b", "c"], "more": [1, 2, 3]}),
    }
    statistics = execute(StatisticsGen, tmp_path / "statistics", write_examples(tmp_path / "examples", batches))
    schema = standard_artifacts.Schema()
    schema.uri = str(tmp_path / "schema")
    inputs = {"statistics": channel_utils.as_channel([statistics])}
    made = SchemaGen(**inputs, exclude_splits=["eval"])
    made.executor_spec.executor_class().Do({"statistics": [statistics]}, {"schema": [schema]}, made.exec_properties)
    outputs = []
    for kind in (ExampleValidator, tfx.components.ExampleValidator):
        output = standard_artifacts.ExampleAnomalies()
        output.uri = str(tmp_path / f"anomalies{len(outputs)}")
        node = kind(**inputs, schema=channel_utils.as_channel([schema]), **given)
        arguments = {"statistics": [statistics], "schema": [schema]}, {"anomalies": [output]}, node.exec_properties
        node.executor_spec.executor_class().Do(*arguments)
        # Parsed: protobuf writes the entries of a map in any order.
        parsed = anomalies_pb2.Anomalies.FromString
        files = {
            str(path.relative_to(output.uri)): parsed(path.read_bytes()) for path in Path(output.uri).rglob("*.pb")
        }
        outputs.append((files, output.split_names, output.span, output.get_json_value_custom_property("blessed")))
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0]) == 2 - len(given)
    assert outputs[0][3]["train"] == 1
