"""Parquet, Avro and TFRecord as components: what is written, beside what TFX's own executors write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from infeed import components
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import records
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions, ShardOptions
from infeed.components.dataset.splits import Buckets, assign_by_feature

pytestmark = pytest.mark.tfx

Multiset = Callable[[str], dict[str, Counter[bytes]]]
TAXI = Path(__file__).parents[4] / "shared" / "data" / "chicago_taxi.parquet"
EDGES = [{"i": 0, "f": 0.0, "b": False, "s": "", "raw": b""}, {"i": 1, "f": 1.5, "b": True, "s": "x", "raw": b"\x00y"}]


def theirs(input_base: str, executor: Any) -> Any:
    from tfx.components import FileBasedExampleGen
    from tfx.dsl.components.base import executor_spec

    return FileBasedExampleGen(input_base, custom_executor_spec=executor_spec.BeamExecutorSpec(executor))


def values_of(splits: dict[str, Counter[bytes]]) -> list[dict[str, Any]]:
    """Every example of every split as name -> values, sorted by `i`."""
    import tensorflow as tf

    found = []
    for record in (record for counted in splits.values() for record in counted.elements()):
        features = tf.train.Example.FromString(record).features.feature
        lists = {
            name: getattr(feature, feature.WhichOneof("kind") or "bytes_list") for name, feature in features.items()
        }
        found.append({name: list(values.value) for name, values in lists.items()})
    return sorted(found, key=lambda example: example["raw"])


def test_parquet_keeps_what_tfx_loses(tmp_path: Path, multiset: Multiset, execute: Any) -> None:
    from tfx.components.example_gen.custom_executors import parquet_executor

    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(EDGES), tmp_path / "in" / "a.parquet")
    execute(theirs(f"{tmp_path}/in", parquet_executor.Executor), tmp_path / "theirs")
    lost, kept = values_of(multiset(f"{tmp_path}/theirs"))
    assert lost == {"i": [], "f": [], "b": [], "s": [], "raw": []}
    assert kept == {"i": [1], "f": [1.5], "b": [1], "s": [b"x"], "raw": [b"\x00y"]}

    execute(components.ParquetExampleGen(f"{tmp_path}/in"), tmp_path / "ours")
    zeros, ones = values_of(multiset(f"{tmp_path}/ours"))
    assert zeros == {"i": [0], "f": [0.0], "b": [0], "s": [b""], "raw": [b""]}
    assert ones == kept


@pytest.mark.skipif(not TAXI.exists(), reason="no taxi data in a folder shared/data beside the checkout")
def test_taxi_trips_are_tfxs_where_it_loses_nothing(tmp_path: Path, multiset: Multiset, execute: Any) -> None:
    import tensorflow as tf
    from tfx.components.example_gen.custom_executors import parquet_executor

    def without_zeros(splits: dict[str, Counter[bytes]]) -> Counter[bytes]:
        """Both of theirs for a zero, missing and empty, and ours, which is there, become missing."""
        stripped: Counter[bytes] = Counter()
        for record in (record for counted in splits.values() for record in counted.elements()):
            example = tf.train.Example.FromString(record)
            for name, feature in list(example.features.feature.items()):
                values = getattr(feature, feature.WhichOneof("kind") or "int64_list").value
                if not values or values[0] in (0, b""):
                    del example.features.feature[name]
            stripped[example.SerializeToString(deterministic=True)] += 1
        return stripped

    (tmp_path / "in").mkdir()
    pq.write_table(pq.read_table(TAXI).slice(0, 2_000), tmp_path / "in" / "taxi.parquet")
    execute(theirs(f"{tmp_path}/in", parquet_executor.Executor), tmp_path / "theirs")
    execute(components.ParquetExampleGen(f"{tmp_path}/in"), tmp_path / "ours")
    assert Manifest.read(f"{tmp_path}/ours").rows_read == 2_000
    assert without_zeros(multiset(f"{tmp_path}/ours")) == without_zeros(multiset(f"{tmp_path}/theirs"))


def test_tfxs_reader_reads_columns_of_structs_and_lists(tmp_path: Path, execute: Any) -> None:
    import tensorflow as tf
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx.components.util import tfxio_utils
    from tfx_bsl.tfxio import dataset_options

    rows = [{"n": number, "trip": {"stops": [float(number)] * (number % 3)}} for number in range(500)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "a.parquet", row_group_size=100)
    options = IngestOptions(shards=ShardOptions(count=3), block_bytes=2_000)
    artifact = execute(components.ParquetExampleGen(f"{tmp_path}/in", options=options), tmp_path / "out")
    schema = schema_pb2.Schema(
        feature=[{"name": "n", "type": schema_pb2.INT}, {"name": "trip.stops", "type": schema_pb2.FLOAT}]
    )
    factory = tfxio_utils.get_tf_dataset_factory_from_artifact([artifact], [])
    seen = {}
    for split in ("train", "eval"):
        asked = dataset_options.TensorFlowDatasetOptions(batch_size=64, num_epochs=1)
        for batch in factory([f"{artifact.uri}/Split-{split}/*"], asked, schema):
            numbers = tf.sparse.to_dense(batch["n"]).numpy().ravel().tolist()
            stops = tf.RaggedTensor.from_sparse(batch["trip.stops"]).to_list()
            seen.update(zip(numbers, stops, strict=True))
    assert seen == {row["n"]: row["trip"]["stops"] for row in rows}


def test_avro(tmp_path: Path, multiset: Multiset, execute: Any) -> None:
    types = {"i": "int", "f": "double", "b": "boolean", "s": "string", "raw": "bytes"}
    fields = [{"name": name, "type": ["null", type]} for name, type in types.items()]
    schema = {"type": "record", "name": "Row", "fields": fields}
    (tmp_path / "in").mkdir()
    with open(tmp_path / "in" / "a.avro", "wb") as file:
        fastavro.writer(file, schema, EDGES)
    execute(components.AvroExampleGen(f"{tmp_path}/in"), tmp_path / "ours")
    zeros, _ = values_of(multiset(f"{tmp_path}/ours"))
    assert zeros == {"i": [0], "f": [0.0], "b": [0], "s": [b""], "raw": [b""]}


def write_examples(folder: Path, make: Callable[[int], Any], gzip: bool = False) -> list[bytes]:
    """200 serialized protos, in two files."""
    payloads = [make(number).SerializeToString(deterministic=True) for number in range(200)]
    for name, some in (("a", payloads[:50]), ("b", payloads[50:])):
        framed = records.frame_records(pa.array(some, pa.large_binary()))
        records.write_records(f"{folder}/{name}{'.gz' if gzip else ''}", [framed], gzip_level=6 if gzip else None)
    return payloads


def example(number: int) -> Any:
    import tensorflow as tf

    feature = {"n": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])), "none": tf.train.Feature()}
    return tf.train.Example(features=tf.train.Features(feature=feature))


def sequence_example(number: int) -> Any:
    import tensorflow as tf

    return tf.train.SequenceExample(
        context=example(number).features,
        feature_lists=tf.train.FeatureLists(
            feature_list={"steps": tf.train.FeatureList(feature=[tf.train.Feature()] * (number % 4))}
        ),
    )


def test_records_are_split_as_tfxs_import_splits_them(tmp_path: Path, multiset: Multiset, execute: Any) -> None:
    from tfx.components import ImportExampleGen

    payloads = write_examples(tmp_path / "in", example)
    execute(components.TFRecordExampleGen(f"{tmp_path}/in"), tmp_path / "ours")
    execute(ImportExampleGen(f"{tmp_path}/in"), tmp_path / "theirs")
    ours, theirs = multiset(f"{tmp_path}/ours"), multiset(f"{tmp_path}/theirs")
    assert ours["train"] + ours["eval"] == Counter(payloads)
    assert {split: counted.total() for split, counted in ours.items()} == {
        split: counted.total() for split, counted in theirs.items()
    }
    assert Manifest.read(f"{tmp_path}/ours").schema == ()


@pytest.mark.parametrize("gzip", [False, True])
def test_sequence_examples_are_told_apart(tmp_path: Path, gzip: bool, multiset: Multiset, execute: Any) -> None:
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2

    payloads = write_examples(tmp_path / "in", sequence_example, gzip)
    payload = example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE
    artifact = execute(components.TFRecordExampleGen(f"{tmp_path}/in", payload_format=payload), tmp_path / "out")
    assert examples_utils.get_payload_format(artifact) == payload
    found = multiset(artifact.uri)
    assert found["train"] + found["eval"] == Counter(payloads)
    with pytest.raises(InfeedError, match=r"(?s)not a tf\.Example.*record 0.*payload_format"):
        execute(components.TFRecordExampleGen(f"{tmp_path}/in"), tmp_path / "wrong")


def test_a_feature_splits_records_by_tfxs_rule(tmp_path: Path, multiset: Multiset, execute: Any) -> None:
    from tfx.proto import example_gen_pb2

    payloads = write_examples(tmp_path / "in", example)
    buckets = Buckets((("train", 2), ("eval", 1)), "n")
    named = [{"name": name, "hash_buckets": share} for name, share in buckets.shares]
    output = example_gen_pb2.Output(split_config={"splits": named, "partition_feature_name": "n"})
    execute(components.TFRecordExampleGen(f"{tmp_path}/in", output_config=output), tmp_path / "out")
    numbers = assign_by_feature(pa.RecordBatch.from_pydict({"n": list(range(200))}), "n", buckets)
    found = multiset(f"{tmp_path}/out")
    for at, split in enumerate(buckets.names):
        assert found[split] == Counter(payloads[row] for row in (numbers == at).nonzero()[0])
