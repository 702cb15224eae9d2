"""A function is traced twice, for the analysis and for the features, and the graphs are those of further tracings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

Columns = Mapping[str, Any]
X = [3.0, 1.0, 2.0]


def without_analyzers(columns: Columns) -> dict[str, Any]:
    return {"twice": 2 * columns["x"]}


def one_phase(columns: Columns) -> dict[str, Any]:
    import tensorflow_transform as tft

    return {"x": tft.scale_to_z_score(columns["x"])}


def two_phases(columns: Columns) -> dict[str, Any]:
    import tensorflow_transform as tft

    return {"x": tft.scale_to_0_1(tft.scale_to_z_score(columns["x"]))}


@pytest.fixture
def specs() -> dict[str, Any]:
    import tensorflow as tf

    return {"x": tf.TensorSpec([None], tf.float32), "word": tf.SparseTensorSpec([None, None], tf.string)}


def read(traced: Any, wanted: Mapping[Any, Sequence[Any]]) -> dict[Any, Any]:
    """Fill the sinks of one dataset with one batch."""
    import tensorflow as tf

    from infeed.components.transform.in_process.phases import fill

    word = tf.sparse.from_dense([["a"], ["b"], ["a"]])
    columns = {"x": tf.constant(X), "word": word}
    batch = {name: columns[name] for name in traced.inputs}
    return {dataset: fill(traced, sinks, [batch]) for dataset, sinks in wanted.items()}


@pytest.mark.parametrize(("function", "tracings"), [(without_analyzers, 1), (one_phase, 2), (two_phases, 3)])
def test_a_function_is_traced_once_for_the_first_phase_and_the_plan_and_once_for_the_features(
    function: Callable[[Columns], dict[str, Any]], tracings: int, specs: Columns, tmp_path: Path
) -> None:
    import tensorflow_transform as tft

    from infeed.components.transform.in_process.graphs import Graph
    from infeed.components.transform.in_process.plan import Plan

    calls = []

    def counted(columns: Columns) -> dict[str, Any]:
        calls.append(True)
        return function(columns)

    plan = Plan.of(Graph.of(counted, specs, str(tmp_path / "temporary")))
    plan.graph.schema()
    plan.run(read, str(tmp_path / "graph"))
    assert len(calls) == tracings
    assert tft.TFTransformOutput(str(tmp_path / "graph")).transformed_feature_spec()


def test_transform_traces_a_function_twice(tmp_path: Path, execute: Callable[..., Any]) -> None:
    """TFX's check of the function and the plan share a tracing."""
    from infeed.components.transform.component import Transform

    (tmp_path / "tracing.py").write_text(
        "import tensorflow_transform as tft\n\n"
        "def preprocessing_fn(inputs):\n"
        f"    open({str(tmp_path / 'calls')!r}, 'a').write('called ')\n"
        "    return {'x': tft.scale_to_z_score(inputs['x'])}\n"
    )
    schema = 'feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }'
    named = f"{tmp_path / 'tracing.py'}:preprocessing_fn"
    execute(Transform, tmp_path, [{"train": records("x"), "eval": records("x")}], schema, preprocessing_fn=named)
    assert (tmp_path / "calls").read_text().split() == ["called", "called"]


def records(*columns: str) -> list[bytes]:
    import pyarrow as pa

    from infeed.components.dataset.encode import encode_examples

    batch = pa.RecordBatch.from_pydict({name: pa.array(X, pa.float32()) for name in columns})
    return [bytes(one) for one in encode_examples(batch).to_pylist()]


def test_an_assertion_that_no_analyzer_needs_is_checked_in_the_first_phase(specs: Columns, tmp_path: Path) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.in_process.graphs import Graph
    from infeed.components.transform.in_process.plan import Plan

    def asserting(columns: Columns) -> dict[str, Any]:
        tf.debugging.assert_less(tf.strings.length(columns["word"].values), 1, message="too long")
        return {"x": tft.scale_to_z_score(columns["x"])}

    with pytest.raises(InfeedError, match="too long") as raised:
        Plan.of(Graph.of(asserting, specs, str(tmp_path / "temporary"))).run(read, str(tmp_path / "graph"))
    assert "in asserting" in raised.value.where


def annotated(columns: Columns) -> dict[str, Any]:
    """Return features with every kind of annotation, one of which is not of a feature."""
    import tensorflow as tf
    import tensorflow_transform as tft
    from google.protobuf import wrappers_pb2
    from tensorflow_transform import schema_inference

    index = tft.compute_and_apply_vocabulary(columns["word"])
    sparse, shaped = (tf.sparse.map_values(tf.strings.lower, columns["word"]) for _ in range(2))
    ranged = tf.cast(columns["x"], tf.int64)
    schema_inference.set_tensor_schema_override(ranged, tf.constant(1, tf.int64), tf.constant(7, tf.int64))
    note = wrappers_pb2.StringValue(value="about x").SerializeToString()
    url = "type.googleapis.com/google.protobuf.StringValue"
    schema_inference.annotate(url, tf.constant(note), ranged)
    schema_inference.annotate(url, tf.constant(note))
    schema_inference.annotate_true_sparse_output(sparse)
    schema_inference.annotate_sparse_output_shape(shaped, tf.constant([5], tf.int64))
    return {"index": index, "sparse": sparse, "shaped": shaped, "ranged": ranged, "x": columns["x"]}


def of_columns(columns: Columns) -> dict[str, Any]:
    """Return a feature whose annotation tft computes from columns that it makes up."""
    import tensorflow as tf
    from tensorflow_transform import schema_inference

    ranged = tf.cast(columns["x"], tf.int64)
    most = tf.reduce_max(ranged) + 4
    schema_inference.set_tensor_schema_override(ranged, tf.constant(-9, tf.int64), most)
    return {"ranged": ranged}


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("function", [annotated, of_columns])
def test_annotations_are_those_of_tfts_own_tracing(
    function: Callable[[Columns], dict[str, Any]], final: bool, specs: Columns, tmp_path: Path
) -> None:
    import tensorflow as tf
    from tensorflow_transform import graph_context, schema_inference

    from infeed.components.seams import tft as tft_seam
    from infeed.components.transform.in_process.graphs import Graph

    graph = Graph.of(function, specs, str(tmp_path))
    ours = graph._schema_of(graph.first, None, final=final)
    context = graph_context.TFGraphContext(tf.Module(), str(tmp_path), {})
    noted = schema_inference.get_traced_metadata_fn(function, graph.inputs, context, final)
    theirs = schema_inference.infer_feature_schema_v2(graph.outputs, noted, final)
    assert ours == theirs
    ranged = next(feature for feature in ours.feature if feature.name == "ranged")
    assert ranged.int_domain.is_categorical
    assert ranged.int_domain.max == ((7 if function is annotated else 4) if final else 0)
    found = tft_seam.annotations_of(graph.traced, graph.outputs, final=final)
    assert (found is None) == (final and function is of_columns)
    if found is not None:
        here, there = (
            tf.nest.map_structure(lambda leaf: np.asarray(leaf).tolist(), dict(one())) for one in (found, noted)
        )
        assert {name: values for name, values in here.items() if values} == there


def test_statistics_describe_columns_that_only_the_analysis_needs(tmp_path: Path, execute: Callable[..., Any]) -> None:
    import tensorflow_data_validation as tfdv

    from infeed.components.transform.component import Transform

    (tmp_path / "weighing.py").write_text(
        "import tensorflow_transform as tft\n\n"
        "def preprocessing_fn(inputs):\n"
        "    return {'x': inputs['x'] / tft.mean(inputs['weight'])}\n"
    )
    schema = "".join(
        f'feature {{ name: "{name}" type: FLOAT presence {{ min_fraction: 1 }} shape {{ dim {{ size: 1 }} }} }}\n'
        for name in ("x", "weight", "unused")
    )
    named = f"{tmp_path / 'weighing.py'}:preprocessing_fn"
    rows = records("x", "weight", "unused")
    made = execute(Transform, tmp_path, [{"train": rows, "eval": rows}], schema, preprocessing_fn=named)
    found = tfdv.load_stats_binary(str(made["pre_transform_stats"] / "FeatureStats.pb"))
    assert {feature.path.step[0] for feature in found.datasets[0].features} == {"x", "weight"}
