"""Rows are read like tfx_bsl does, and an error of a function on rows has its line, the operation and values."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tf_examples import serialize

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

SCHEMA = """
feature { name: "age" type: FLOAT presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
feature { name: "price" type: BYTES presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
"""
# `price` is text, of which one is no number: TensorFlow finds that when it runs, Python finds the other when it traces.
ON_DATA = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    price = tf.strings.to_number(inputs["price"])
    return {"price": tft.scale_to_z_score(price), "age": inputs["age"]}
"""
ON_TRACING = """
def preprocessing_fn(inputs):
    return {"sum": inputs["age"] + inputs["price"]}
"""


def records() -> list[bytes]:
    return [serialize({"age": age, "price": price}) for age, price in ((1.5, b"10.5"), (2.5, b"CHF 12"))]


@pytest.mark.parametrize(
    ("source", "what", "where"),
    [
        (
            ON_DATA,
            "preprocessing_fn fails on the data: .*could not correctly convert string: CHF 12",
            "own.py, line 6, in preprocessing_fn: 'price = tf.strings.to_number(inputs[\"price\"])'"
            "; operation StringToNumber (StringToNumber); column 'price' holds b'10.5', b'CHF 12'",
        ),
        (ON_TRACING, "TypeError: ", "; column 'age' holds 1.5, 2.5; column 'price' holds b'10.5', b'CHF 12'"),
    ],
    ids=["on the data", "while it is traced"],
)
def test_the_line_the_operation_and_some_values_are_told(
    tmp_path: Path, execute: Callable[..., Any], source: str, what: str, where: str
) -> None:
    from infeed.components.transform.component import Transform

    (tmp_path / "own.py").write_text(source)
    given = {"preprocessing_fn": f"{tmp_path}/own.py:preprocessing_fn", "disable_statistics": True}
    rows = [{"train": records(), "eval": records()}]
    with pytest.raises(InfeedError, match=what) as caught:
        execute(Transform, tmp_path / "out", rows, SCHEMA, **given, disable_analyzer_cache=True, materialize=False)
    assert re.search(re.escape(where), caught.value.where), caught.value.where
    assert caught.value.do


TEXT_SCHEMA = """
feature { name: "number" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }
feature { name: "many" type: INT }
feature { name: "word" type: BYTES }
feature { name: "absent" type: INT }
"""


def example(**features: Any) -> bytes:
    import tensorflow as tf

    kinds = {float: "float_list", int: "int64_list", bytes: "bytes_list"}
    message = tf.train.Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        for value in values:
            getattr(feature, kinds[type(value)]).value.append(value)
    return bytes(message.SerializeToString())


def reader_and_rows(
    folder: Path, payloads: list[bytes], schema_text: str = TEXT_SCHEMA, columns: Sequence[str] = ()
) -> tuple[Any, Any]:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio import tf_example_record

    from infeed.components.dataset import records
    from infeed.components.dataset.reading import ShardRange
    from infeed.components.transform.rows import ColumnReader

    path = str(folder / "data.gz")
    records.write_records(path, [records.frame_records(pa.array(payloads, pa.large_binary()))], gzip_level=1)
    schema = text_format.Parse(schema_text, schema_pb2.Schema())
    tfxio = tf_example_record.TFExampleRecord(path, schema=schema)
    return ColumnReader.of(schema, tfxio, columns), ShardRange("train", path)


def test_tensors_are_those_of_tfx_bsl(tmp_path: Path) -> None:
    from tfx_bsl.coders import example_coder
    from tfx_bsl.tfxio import tensor_adapter

    payloads = [
        example(number=[1.5], many=[1, -2, 3], word=[b"a", b""], unknown=[7]),
        example(number=[-0.0], many=[], word=[b"\xff\x00"]),
        example(number=[float("nan")]),
    ]
    reader, rows = reader_and_rows(tmp_path, payloads)
    (found,) = reader.batches(rows)
    decoded = example_coder.ExamplesToRecordBatchDecoder(reader.schema).DecodeBatch(payloads)
    adapter = tensor_adapter.TensorAdapter(reader.config)
    expected = adapter.ToBatchTensors(decoded, produce_eager_tensors=True)
    assert found.keys() == expected.keys() == {"number", "many", "word", "absent"}
    assert {name: parts(one) for name, one in found.items()} == {name: parts(one) for name, one in expected.items()}


REPRESENTED = """
tensor_representation_group { key: "" value { tensor_representation {
  key: "ragged" value { ragged_tensor { feature_path { step: "many" } row_partition_dtype: INT64 } }
} } }
"""


@pytest.mark.parametrize("columns", [[], ["ragged", "number"], ["word"]])
def test_a_schema_may_represent_some_of_its_features(tmp_path: Path, columns: list[str]) -> None:
    payloads = [example(number=[1.5], many=[1, -2, 3], word=[b"a"]), example(number=[0.0])]
    reader, rows = reader_and_rows(tmp_path, payloads, TEXT_SCHEMA + REPRESENTED, columns)
    (found,) = reader.batches(rows)
    assert set(found) == set(columns or ["ragged", "number", "word", "absent"])
    if "ragged" in found:
        assert found["ragged"].to_list() == [[1, -2, 3], []]
        assert found["number"].numpy().tolist() == [[1.5], [0.0]]
    else:
        assert found["word"].values.numpy().tolist() == [b"a"]


def parts(tensor: Any) -> list[Any]:
    """The components of a tensor: text as it is, numbers as bytes."""
    import tensorflow as tf

    found = [part.numpy() for part in tf.nest.flatten(tensor, expand_composites=True)]
    return [part.tolist() if part.dtype == object else (part.shape, part.tobytes()) for part in found]


@pytest.mark.parametrize("wrong", ["type", "bytes"])
def test_tfx_bsl_rejects_what_is_not_of_the_schema(wrong: str, tmp_path: Path) -> None:
    payload = example(number=[b"one"]) if wrong == "type" else b"\x0a\xff"
    reader, rows = reader_and_rows(tmp_path, [payload])
    with pytest.raises((ValueError, RuntimeError), match=r"number|parse"):
        list(reader.batches(rows))


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
    raw = [ragged_example(row, lengths if has_lengths else None) for row, lengths in zip(values, LENGTHS, strict=True)]
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
    raw = [ragged_example(row, [number]) for number, row in enumerate(VALUES)]
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


def ragged_example(values: list[float], lengths: list[int] | None) -> bytes:
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


def test_workers_of_declared_features_do_not_load_beam() -> None:
    program = "import sys, infeed.components.transform.declared; sys.exit('apache_beam' in sys.modules)"
    seam = "from infeed.components.seams import tensorflow_alone; import tensorflow_transform; "
    subprocess.run([sys.executable, "-c", seam + program], check=True)
