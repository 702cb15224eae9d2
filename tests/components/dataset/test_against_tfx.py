"""The encoder and the splits against their oracles: protobuf's own bytes, TFX's own partition function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.dataset import example_types, records
from infeed.components.dataset.encode import encode_examples, encode_feature
from infeed.components.dataset.splits import Buckets, assign_splits

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
ITEMS = {
    "int64": (pa.int64(), INTS),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**63 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "float64": (pa.float64(), FLOATS),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "string": (pa.string(), st.text(max_size=200)),
    "binary": (pa.binary(), st.binary(max_size=300)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["", "a", "bb"])),
    "timestamp": (pa.timestamp("us"), INTS),
}


@st.composite
def arrays(draw: st.DrawFn, rows: int) -> pa.Array:
    """A column of any supported type with any nulls, as a list, a fixed-size list or single values."""
    column, items = ITEMS[draw(st.sampled_from(sorted(ITEMS)))]
    shape = draw(st.sampled_from(["one", "list", "large list", "fixed"]))
    if shape == "one":
        return pa.array(draw(st.lists(st.none() | items, min_size=rows, max_size=rows)), column)
    size = 2 if shape == "fixed" else None
    lists = st.lists(items, min_size=size or 0, max_size=size or 4)
    if pa.types.is_dictionary(column):  # older Arrow cannot build lists of these from Python
        column = column.value_type
    kind = {"list": pa.list_(column), "large list": pa.large_list(column), "fixed": pa.list_(column, 2)}[shape]
    return pa.array(draw(st.lists(st.none() | lists, min_size=rows, max_size=rows)), kind)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 5))
    names = draw(st.lists(st.text(max_size=150), max_size=5, unique=True))
    return pa.RecordBatch.from_arrays([draw(arrays(rows)) for _ in names], names=names)


def feature_of(value: Any, column: pa.DataType, empty_lists: bool) -> Any:
    """One tf.train.Feature, the slow way; None where it is missing."""
    import tensorflow as tf

    kind = example_types.kind_of(column)
    if value is None and not empty_lists:
        return None
    values = [] if value is None else value if example_types.is_list(column) else [value]
    if kind == "int":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(one) for one in values]))
    if kind == "float":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    text = [one.encode() if isinstance(one, str) else one for one in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=text))


def plain(array: pa.Array) -> list[Any]:
    """Python values; timestamps as integers, which also lie beyond Python's own."""
    if pa.types.is_timestamp(example_types.item_type(array.type)):
        counted = {
            pa.types.is_list: lambda: pa.list_(pa.int64()),
            pa.types.is_large_list: lambda: pa.large_list(pa.int64()),
            pa.types.is_fixed_size_list: lambda: pa.list_(pa.int64(), 2),
        }
        target = next((make() for check, make in counted.items() if check(array.type)), pa.int64())
        array = array.view(target)
    return array.to_pylist()


def serialized(batch: pa.RecordBatch, empty_lists: bool) -> list[bytes]:
    import tensorflow as tf

    expected = []
    values = [plain(column) for column in batch.columns]
    for row in range(batch.num_rows):
        example = tf.train.Example(features=tf.train.Features())
        for name, column, cells in zip(batch.schema.names, batch.columns, values, strict=True):
            feature = feature_of(cells[row], column.type, empty_lists)
            if feature is not None:
                example.features.feature[name].CopyFrom(feature)
        expected.append(example.SerializeToString(deterministic=True))
    return expected


@given(batches(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_bytes_are_those_of_protobuf(batch: pa.RecordBatch, empty_lists: bool) -> None:
    assert encode_examples(batch, empty_lists=empty_lists).to_pylist() == serialized(batch, empty_lists)


def test_a_column_of_nothing_is_a_feature_of_no_kind() -> None:
    import tensorflow as tf

    batch = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["x"])
    example = tf.train.Example()
    example.features.feature["x"].CopyFrom(tf.train.Feature())
    assert encode_examples(batch, empty_lists=True).to_pylist() == [example.SerializeToString(deterministic=True)]


def test_tensorflow_reads_what_is_written(tmp_path: Path) -> None:
    import tensorflow as tf

    payloads = [b"", b"a", b"b" * 100_000]
    framed = records.frame_records(pa.array(payloads, pa.large_binary()))
    for name, level in (("plain", None), ("isal.gz", 1), ("zlib.gz", 6)):
        records.write_records(f"{tmp_path}/{name}", [framed], gzip_level=level)
        dataset = tf.data.TFRecordDataset(f"{tmp_path}/{name}", "" if level is None else "GZIP")
        assert list(dataset.as_numpy_iterator()) == payloads


def test_what_tensorflow_writes_is_read(tmp_path: Path) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(f"{tmp_path}/data.gz", "GZIP") as writer:
        for payload in (b"", b"abc"):
            writer.write(payload)
    assert list(records.read_records(f"{tmp_path}/data.gz")) == [b"", b"abc"]


@given(st.lists(INTS, min_size=1, max_size=30), st.lists(st.integers(1, 50), min_size=1, max_size=4), st.booleans())
@settings(deadline=None)
def test_every_row_goes_where_tfx_sends_it(values: list[int], shares: list[int], by_feature: bool) -> None:
    import tensorflow as tf
    from tfx.components.example_gen import base_example_gen_executor as oracle
    from tfx.proto import example_gen_pb2

    batch = pa.RecordBatch.from_arrays([pa.array(values), pa.array(map(str, values))], names=["key", "text"])
    examples = encode_examples(batch)
    limits = [sum(shares[: end + 1]) for end in range(len(shares))]
    config = example_gen_pb2.SplitConfig(partition_feature_name="key" if by_feature else None)
    expected = [
        oracle._PartitionFn(tf.train.Example.FromString(example), len(shares), limits, config)
        for example in examples.to_pylist()
    ]
    keys = encode_feature(batch.column(0), "key") if by_feature else examples
    buckets = Buckets(tuple((f"s{number}", share) for number, share in enumerate(shares)))
    assert assign_splits(keys.to_pylist(), buckets).tolist() == expected
