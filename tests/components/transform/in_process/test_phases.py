"""A function's analysis without Beam gives what tft gives on Beam, file by file and value by value.

Covers `graphs`, `plan` and `processor` as well.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

ROWS = 300


def many_analyzers(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Most kinds of nodes that tft's analyzers make, and two phases."""
    import tensorflow as tf
    import tensorflow_transform as tft

    x, city, label = columns["x"], columns["city"], columns["label"]

    def constant(value: Any) -> Any:
        return tf.zeros_like(x) + tf.cast(tf.reduce_sum(value), tf.float32)

    tft.vocabulary(city, vocab_filename="weighted", weights=columns["weight"], store_frequency=True)
    tft.vocabulary(city, vocab_filename="informed", labels=label, store_frequency=True, use_adjusted_mutual_info=True)
    tft.vocabulary(city, vocab_filename="shuffled", fingerprint_shuffle=True)
    tft.vocabulary(label, vocab_filename="numbers", store_frequency=True)
    tft.vocabulary(city, vocab_filename="cover", top_k=3, coverage_top_k=1, key_fn=lambda one: one[-1:])
    tft.experimental.approximate_vocabulary(city, top_k=20, vocab_filename="approximate", store_frequency=True)
    words = tft.compute_and_apply_vocabulary(columns["words"], vocab_filename="words", frequency_threshold=2)
    tft.annotate_asset("words of all rows", "words")
    _, weights = tft.tfidf(words, 40)
    _, counts = tft.count_per_key(city)
    return {
        "scaled": tft.scale_to_z_score(x),
        "scaled_by_city": tft.scale_to_z_score_per_key(x, city),
        "bucket": tft.bucketize(x, 4),
        "bucket_by_city": tft.bucketize_per_key(x, city, 3),
        "two_phases": tft.scale_to_0_1(tft.scale_by_min_max(columns["weight"]) - tft.mean(x)),
        "components": constant(tf.abs(tft.pca(columns["vector"], 2, tf.float32))),
        "covariance": constant(tft.covariance(columns["vector"], tf.float32)),
        "counts": constant(counts),
        "size": constant(tft.size(label)),
        "city": tft.compute_and_apply_vocabulary(city, top_k=5, num_oov_buckets=2, vocab_filename="city"),
        "tfidf": weights,
    }


def rows_of(count: int) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(3)
    for _ in range(count):
        yield {
            "x": [float(generator.normal())],
            "weight": [float(generator.gamma(2.0))],
            "city": [b"city %d" % (generator.zipf(1.5) % 12)],
            "label": [int(generator.integers(2))],
            "words": [b"word %d" % (generator.zipf(1.4) % 30) for _ in range(generator.integers(5))],
            "vector": [float(one) for one in generator.normal(size=3)],
        }


class Data:
    """Rows as serialized tf.Examples, and tfx_bsl's view of them."""

    def __init__(self, rows: Sequence[Mapping[str, Sequence[Any]]]) -> None:
        import tensorflow as tf
        import tensorflow_transform as tft
        from tfx_bsl.tfxio import tf_example_record

        one = tf.io.FixedLenFeature
        self.spec = {
            "x": one([], tf.float32),
            "weight": one([], tf.float32),
            "city": one([], tf.string),
            "label": one([], tf.int64),
            "words": tf.io.VarLenFeature(tf.string),
            "vector": one([3], tf.float32),
        }
        self.metadata = tft.DatasetMetadata.from_feature_spec(self.spec)
        self.records = [self._encode(row) for row in rows]
        self.tfxio = tf_example_record.TFExampleBeamRecord("inmem", ["test"], self.metadata.schema)
        self.config = self.tfxio.TensorAdapterConfig()

    def _encode(self, row: Mapping[str, Sequence[Any]]) -> bytes:
        import tensorflow as tf

        example = tf.train.Example()
        for name, values in row.items():
            feature = example.features.feature[name]
            kind = {"x": "float", "weight": "float", "vector": "float", "label": "int64"}.get(name, "bytes")
            getattr(feature, f"{kind}_list").value.extend(values)
        return bytes(example.SerializeToString())

    def reading(self, size: int, parts: int = 1) -> Callable[..., Any]:
        """Of one dataset: its rows in batches, which are divided into so many parts that are merged."""
        from tfx_bsl.coders import example_coder
        from tfx_bsl.tfxio import tensor_adapter

        from infeed.components.transform.in_process.phases import fill, merge_sinks

        adapter = tensor_adapter.TensorAdapter(self.config)
        decoder = example_coder.ExamplesToRecordBatchDecoder(self.metadata.schema.SerializeToString())

        def batches(records: Sequence[bytes]) -> Iterator[Any]:
            for start in range(0, len(records), size):
                decoded = decoder.DecodeBatch(records[start : start + size])
                yield adapter.ToBatchTensors(decoded, produce_eager_tensors=True)

        def read(traced: Any, wanted: Any) -> Any:
            [(dataset, of_it)] = wanted.items()
            cuts = np.array_split(np.array(self.records, object), parts)
            filled = [fill(traced, of_it, batches(list(part))) for part in cuts]
            return {dataset: functools.reduce(merge_sinks, filled)}

        return read

    def specs(self) -> dict[str, Any]:
        from tfx_bsl.tfxio import tensor_adapter

        return dict(tensor_adapter.TensorAdapter(self.config).OriginalTypeSpecs())


def analyse_on_beam(data: Data, function: Callable[..., Any], folder: Path) -> Path:
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam

    from infeed.components.engine.beam_runner import local_runner

    with local_runner(), beam.Pipeline() as pipeline, tft_beam.Context(str(folder / "temporary")):
        rows = pipeline | beam.Create(data.records) | data.tfxio.BeamSource(len(data.records))
        analyzed = (rows, data.config) | tft_beam.AnalyzeDataset(function)
        _ = analyzed | tft_beam.WriteTransformFn(str(folder / "graph"))
    return folder / "graph"


def test_what_is_analyzed_equals_what_beam_gives_to_the_byte(tmp_path: Path) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.in_process.graphs import Graph
    from infeed.components.transform.in_process.plan import Plan

    data = Data(list(rows_of(ROWS)))
    ours = tmp_path / "ours"
    graph = Graph.of(many_analyzers, data.specs(), str(tmp_path / "temporary"))
    Plan.of(graph).run(data.reading(ROWS), str(ours))
    theirs = analyse_on_beam(data, many_analyzers, tmp_path)

    for kind in ("transform_fn/assets", "transformed_metadata"):
        names = {file.name for file in (theirs / kind).iterdir()}
        assert {file.name for file in (ours / kind).iterdir()} == names != set()
        for name in names:
            assert (ours / kind / name).read_bytes() == (theirs / kind / name).read_bytes(), name
    parsed = tf.io.parse_example(data.records, data.spec)
    here, there = (tft.TFTransformOutput(str(one)).transform_raw_features(parsed) for one in (ours, theirs))
    assert here.keys() == there.keys()
    for name, values in there.items():
        np.testing.assert_array_equal(dense(here[name]), dense(values), name)


def dense(tensor: Any) -> np.ndarray:
    return np.asarray(getattr(tensor, "values", tensor))


@pytest.mark.image
@pytest.mark.parametrize("parts", [1, 4])
def test_in_small_batches_and_parts_the_constants_are_the_same_but_for_rounding(tmp_path: Path, parts: int) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.in_process.graphs import Graph
    from infeed.components.transform.in_process.plan import Plan

    def scale(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {"x": tft.scale_to_z_score(columns["x"]), "city": tft.compute_and_apply_vocabulary(columns["city"])}

    data = Data(list(rows_of(ROWS)))
    values = {}
    for size in (7, ROWS):
        folder = str(tmp_path / str(size))
        graph = Graph.of(scale, data.specs(), str(tmp_path / "temporary"))
        Plan.of(graph).run(data.reading(size, parts if size < ROWS else 1), folder)
        parsed = tf.io.parse_example(data.records, data.spec)
        values[size] = tft.TFTransformOutput(folder).transform_raw_features(parsed)
    np.testing.assert_allclose(values[7]["x"], values[ROWS]["x"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(values[7]["city"], values[ROWS]["city"])
    assert abs(float(np.mean(values[ROWS]["x"]))) < 1e-5


def test_an_analyzer_that_only_beam_knows_is_named(tmp_path: Path) -> None:
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.in_process.graphs import Graph
    from infeed.components.transform.in_process.plan import Plan, UnknownNodesError

    def on_beam(columns: Mapping[str, Any]) -> dict[str, Any]:
        x = columns["x"]
        (largest,) = tft.experimental.ptransform_analyzer([x], beam.combiners.Top.Largest(1), [tf.float32], [[]])
        return {"x": x - largest}

    data = Data(list(rows_of(1)))
    with pytest.raises(UnknownNodesError, match="PTransform of "):
        Plan.of(Graph.of(on_beam, data.specs(), str(tmp_path)))


MODULE = "infeed.components.transform.in_process.plan"
MISSPELT, MENDED = "ScaleAndFlattenPerKeyBucketBouandaries", "ScaleAndFlattenPerKeyBucketBoundaries"


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`Unknown` of the module as it is imported where tft lacks the misspelt name."""
    from tensorflow_transform import analyzer_nodes

    monkeypatch.delattr(analyzer_nodes, MISSPELT)
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None
    assert spec.loader is not None
    nodes = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, MODULE, nodes)  # where dataclasses look
    spec.loader.exec_module(nodes)
    return nodes.Unknown()


def node(name: str, module: str = "tensorflow_transform.analyzer_nodes") -> Any:
    return type(name, (), {"__module__": module, "label": "quantiles", "num_outputs": 4})()


@pytest.mark.parametrize("name", [MISSPELT, MENDED])
def test_either_spelling_is_known(unknown: Any, name: str) -> None:
    assert unknown.visit(node(name), ()) == (None,) * 4
    assert unknown.labels == []


def test_another_name_is_left_to_beam(unknown: Any) -> None:
    unknown.visit(node("ScaleBuckets"), ())
    unknown.visit(node(MENDED, "somebody.elses"), ())
    assert unknown.labels == ["ScaleBuckets of quantiles", f"{MENDED} of quantiles"]
