"""ExampleValidator writes what TFX's writes, and parts of the columns have the anomalies of the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed import components

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


@pytest.mark.parametrize("given", [{}, {"exclude_splits": ["eval"]}])
def test_the_anomalies_and_the_properties_are_those_of_tfx(
    tmp_path: Path, write_examples: Callable[..., Any], execute: Callable[..., Any], given: dict[str, Any]
) -> None:
    import tfx.components
    from tensorflow_metadata.proto.v0 import anomalies_pb2
    from tfx.types import channel_utils, standard_artifacts

    batches = {
        "train": pa.RecordBatch.from_pydict({"x": [1, 2, 3], "word": ["a", "b", "a"]}),
        "eval": pa.RecordBatch.from_pydict({"x": [1, 2, 3], "word": ["a", "b", "c"], "more": [1, 2, 3]}),
    }
    statistics = execute(
        components.StatisticsGen, tmp_path / "statistics", write_examples(tmp_path / "examples", batches)
    )
    schema = standard_artifacts.Schema()
    schema.uri = str(tmp_path / "schema")
    inputs = {"statistics": channel_utils.as_channel([statistics])}
    made = components.SchemaGen(**inputs, exclude_splits=["eval"])
    made.executor_spec.executor_class().Do({"statistics": [statistics]}, {"schema": [schema]}, made.exec_properties)
    outputs = []
    for kind in (components.ExampleValidator, tfx.components.ExampleValidator):
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


RANDOM = np.random.default_rng(0)


def statistics(columns: dict[str, Any]) -> Any:
    import pandas as pd
    import tensorflow_data_validation as tfdv

    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns))


def columns() -> dict[str, Any]:
    kinds = [RANDOM.normal(size=40), RANDOM.integers(0, 9, 40), RANDOM.choice(["a", "b", "c"], 40)]
    return {f"c{place}": kinds[place % 3] for place in range(24)}


@pytest.mark.parametrize("size", [1, 7, 23])
def test_parts_have_the_anomalies_of_the_whole(size: int) -> None:
    import tensorflow_data_validation as tfdv

    from infeed.components.statistics.validator import validate

    schema = tfdv.infer_schema(statistics(columns()))
    schema.dataset_constraints.min_examples_count = 1_000
    changed = {**columns(), "c2": ["new"] * 40, "c1": ["text"] * 40, "c8": [None] * 40, "extra": [1] * 40}
    del changed["c5"]
    found = validate(statistics(changed), schema, size)
    whole = tfdv.validate_statistics(statistics(changed), schema)
    assert {"c1", "c2", "c5", "extra"} <= set(whole.anomaly_info)
    assert found == whole
    assert validate(statistics(columns()), schema, size).HasField("dataset_anomaly_info")


def test_features_that_depend_on_each_other_are_validated_as_a_whole() -> None:
    import tensorflow_data_validation as tfdv

    from infeed.components.statistics.validator import validate

    schema = tfdv.infer_schema(statistics(columns()))
    sparse = schema.sparse_feature.add(name="sparse")
    sparse.index_feature.add(name="c1")
    sparse.value_feature.name = "c0"
    assert validate(statistics(columns()), schema, 3) == tfdv.validate_statistics(statistics(columns()), schema)
