"""Transformed examples, read by the graph's own feature spec, are what the graph computes from the raw ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

MODULE = """
def preprocessing_fn(inputs):
    import tensorflow_transform as tft

    return {"out": tft.scale_to_0_1(inputs["x"])}
"""
VALUES, LENGTHS = [[0.0, 1.0, 2.0, 3.0], [2.0, 4.0], []], [[1, 1], [0, 1], []]
RAGGED = (
    'ragged_tensor {{ feature_path {{ step: "x" }} row_partition_dtype: INT64 {} }}',
    'partition { row_length: "lengths" }',
    "partition { uniform_row_length: 2 }",
)
# Name -> (representation of x, values of each row).
REPRESENTATIONS = {
    "ragged": (RAGGED[0].format(""), VALUES),
    "uniform rows": (RAGGED[0].format(RAGGED[2]), VALUES),
    "rows by length": (RAGGED[0].format(RAGGED[1]), [[0.0, 1.0], [2.0], []]),
    "uniform rows in rows by length": (RAGGED[0].format(RAGGED[1] + RAGGED[2]), VALUES),
    "sparse": ('varlen_sparse_tensor { column_name: "x" }', VALUES),
    "dense": (
        'dense_tensor { column_name: "x" shape { dim { size: 2 } dim { size: 2 } } }',
        [[0.0, 1.0, 2.0, 3.0], [2.0, 4.0, 0.0, 0.0], [1.0] * 4],
    ),
}
SCALED = {  # the first row
    "uniform rows": [[0.0, 0.25], [0.5, 0.75]],
    "rows by length": [[0.0], [0.5]],
    "uniform rows in rows by length": [[[0.0, 0.25]], [[0.5, 0.75]]],
    "dense": [[0.0, 0.25], [0.5, 0.75]],
}


HERE = ("rows by length", "dense")  # the others are read in the image


@pytest.mark.parametrize(
    "kind", [kind if kind in HERE else pytest.param(kind, marks=pytest.mark.image) for kind in REPRESENTATIONS]
)
def test_transformed_examples_have_the_names_of_their_schema(
    kind: str, tmp_path: Path, execute: Callable[..., Any]
) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.component import Transform

    representation, values = REPRESENTATIONS[kind]
    has_lengths = "lengths" in representation
    raw = [example(row, lengths if has_lengths else None) for row, lengths in zip(values, LENGTHS, strict=True)]
    schema = 'feature { name: "x" type: FLOAT }' + 'feature { name: "lengths" type: INT }' * has_lengths
    group = 'tensor_representation_group { key: "" value { tensor_representation { key: "x" value { %s } } } }'
    (tmp_path / "scaling.py").write_text(MODULE)
    options = {"module_file": str(tmp_path / "scaling.py"), "disable_statistics": True, "disable_analyzer_cache": True}
    outputs = execute(
        Transform, tmp_path / kind, [{"train": raw, "eval": raw}], schema + group % representation, **options
    )

    graph = tft.TFTransformOutput(str(outputs["transform_graph"]))
    expected = graph.transform_raw_features(tf.io.parse_example(raw, graph.raw_feature_spec()))["out"]
    files = [str(file) for file in (outputs["transformed_examples"] / "Split-eval").iterdir()]
    written = list(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator())
    found = tf.io.parse_example(written, graph.transformed_feature_spec())["out"]
    assert as_lists(found) == as_lists(expected)
    assert as_lists(found)[0] == SCALED.get(kind, [0.0, 0.25, 0.5, 0.75])


@pytest.mark.parametrize("on_beam", [False, pytest.param(True, marks=pytest.mark.image)])
def test_features_without_a_representation_are_inputs_too(
    on_beam: bool, tmp_path: Path, execute: Callable[..., Any]
) -> None:
    """tfx_bsl alone cannot project them. On Beam: TFDV counts lists of lists."""
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.component import Transform

    (tmp_path / "scaling.py").write_text(
        MODULE.replace('["x"])}', '["x"]), "one": tft.scale_to_0_1(inputs["lengths"])}')
    )
    raw = [example(row, [number]) for number, row in enumerate(VALUES)]
    schema = (
        'feature { name: "x" type: FLOAT }'
        'feature { name: "lengths" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }'
        'tensor_representation_group { key: "" value { tensor_representation { key: "x" value { %s } } } }'
    )
    outputs = execute(
        Transform,
        tmp_path / "work",
        [{"train": raw, "eval": raw}],
        schema % REPRESENTATIONS["uniform rows"][0],
        module_file=str(tmp_path / "scaling.py"),
        disable_statistics=not on_beam,
        disable_analyzer_cache=True,
    )
    spec = tft.TFTransformOutput(str(outputs["transform_graph"])).transformed_feature_spec()
    files = [str(file) for file in (outputs["transformed_examples"] / "Split-eval").iterdir()]
    found = tf.io.parse_example(list(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()), spec)
    assert found["one"].numpy().tolist() == [[0.0], [0.5], [1.0]]
    assert found["out"].to_list() == [[[0.0, 0.25], [0.5, 0.75]], [[0.5, 1.0]], []]


def example(values: list[float], lengths: list[int] | None) -> bytes:
    import tensorflow as tf

    features = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=values))}
    if lengths is not None:
        features["lengths"] = tf.train.Feature(int64_list=tf.train.Int64List(value=lengths))
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def as_lists(tensor: Any) -> Any:
    import tensorflow as tf

    if isinstance(tensor, tf.RaggedTensor):
        return tensor.to_list()
    return (tf.sparse.to_dense(tensor, -1.0) if isinstance(tensor, tf.SparseTensor) else tensor).numpy().tolist()
