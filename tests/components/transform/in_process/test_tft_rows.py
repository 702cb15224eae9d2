"""Rows of tf.Examples arrive as tfx_bsl decodes them, and what it rejects is rejected in its words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

SCHEMA = """
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
    folder: Path, payloads: list[bytes], schema_text: str = SCHEMA, columns: Sequence[str] = ()
) -> tuple[Any, Any]:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio import tf_example_record

    from infeed.components.dataset import records
    from infeed.components.dataset.ranges import ShardRange
    from infeed.components.transform.in_process.tft_rows import ColumnReader

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
    reader, rows = reader_and_rows(tmp_path, payloads, SCHEMA + REPRESENTED, columns)
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
