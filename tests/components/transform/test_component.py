"""The component in front of TFX's executor: what it writes can be applied in tf.data, served, and read materialised."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infeed.components.errors import InfeedError
from infeed.components.transform.features import DecodeImage, Feature, Label, Vocabulary, ZScore

pytestmark = pytest.mark.tfx

TABLE: list[dict[str, Any]] = [
    {"age": 20.0, "city": b"Basel", "paid": b"yes"},
    {"city": b"Bern", "paid": b"no"},
    {"age": 40.0, "paid": b"yes"},
    {"age": 60.0, "city": b"Bern", "paid": b"no"},
]
TABLE_FEATURES = [ZScore("age"), Vocabulary("city"), Label("paid")]
TABLE_SCHEMA = """
feature { name: "age" type: FLOAT presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "city" type: BYTES presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "paid" type: BYTES presence { min_count: 1 min_fraction: 1.0 } shape { dim { size: 1 } } }
"""
IMAGE_SCHEMA = """
feature { name: "image/encoded" type: BYTES presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
feature { name: "label" type: INT presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
"""


def png(gray: int, size: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((size, size), gray, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def serialized(row: Mapping[str, Any], empty: Sequence[str] = ()) -> bytes:
    """A tf.Example; the columns in `empty` are there with a list of no values, as TFX's CsvExampleGen writes a null."""
    import tensorflow as tf

    example = tf.train.Example()
    for name, value in row.items():
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(value)]
        getattr(example.features.feature[name], kind).value.append(value)
    for name in empty:
        example.features.feature[name].float_list.value[:] = []
    return bytes(example.SerializeToString())


def run(
    folder: Path, records: Sequence[bytes], schema: str, features: Sequence[Feature], *, materialize: bool = False
) -> Path:
    """Runs the component's own executor on one file in "train" and "eval"; gives the folder of its outputs."""
    import tensorflow as tf
    from tfx.types import artifact_utils, channel_utils, standard_artifacts

    from infeed.components.transform.component import Transform

    examples, schema_artifact = standard_artifacts.Examples(), standard_artifacts.Schema()
    examples.uri, schema_artifact.uri = str(folder / "raw"), str(folder / "schema")
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    for split in ("train", "eval"):
        (folder / "raw" / f"Split-{split}").mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / "raw" / f"Split-{split}" / "data.gz"), "GZIP") as writer:
            for record in records:
                writer.write(record)
    (folder / "schema").mkdir()
    (folder / "schema" / "schema.pbtxt").write_text(schema)

    channels = [channel_utils.as_channel([artifact]) for artifact in (examples, schema_artifact)]
    component = Transform(*channels, features=features, materialize=materialize)
    outputs = {name: [channel.type()] for name, channel in component.outputs.items()}
    for name, (artifact,) in outputs.items():
        artifact.uri = str(folder / name)
    executor = component.executor_spec.executor_class
    executor(executor.Context(tmp_dir=str(folder / "tmp"), unique_id="1")).Do(
        {"examples": [examples], "schema": [schema_artifact]}, outputs, dict(component.exec_properties)
    )
    return folder


def applied(folder: Path, records: Sequence[bytes], without: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The saved graph, applied to parsed batches in plain tf.data, as training does."""
    import tensorflow as tf
    import tensorflow_transform as tft
    from tensorflow_transform.saved import saved_transform_io_v2

    output = tft.TFTransformOutput(str(folder / "transform_graph"))
    loader = saved_transform_io_v2.SavedModelLoader(output.transform_savedmodel_dir)
    spec = {name: feature for name, feature in output.raw_feature_spec().items() if name not in without}

    @tf.autograph.experimental.do_not_convert
    def features_of(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(loader.apply_transform_model(tf.io.parse_example(batch, spec)))

    dataset = tf.data.Dataset.from_tensor_slices(list(records)).batch(len(records)).map(features_of)
    return {name: value.numpy() for name, value in next(iter(dataset)).items()}


def materialized(folder: Path, split: str) -> dict[str, np.ndarray]:
    """The transformed examples, parsed as TFX's own Trainer parses them: by the transformed feature spec."""
    import tensorflow as tf
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(str(folder / "transform_graph")).transformed_feature_spec()
    files = [str(file) for file in (folder / "transformed_examples" / f"Split-{split}").iterdir()]
    (batch,) = tf.data.TFRecordDataset(files, "GZIP").batch(1000)
    return {name: value.numpy() for name, value in tf.io.parse_example(batch, spec).items()}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [serialized(row) for row in TABLE]
    return run(tmp_path_factory.mktemp("table"), records, TABLE_SCHEMA, TABLE_FEATURES, materialize=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [serialized({"image/encoded": png(80 * n, size), "label": n}) for n, size in ((2, 8), (1, 8), (0, 20))]
    return run(
        tmp_path_factory.mktemp("images"),
        records,
        IMAGE_SCHEMA,
        [DecodeImage(8, 8, 1), Label("label")],
        materialize=True,
    )


@pytest.mark.parametrize("empty", [(), ("age",)], ids=["absent", "present but empty"])
def test_both_forms_of_a_null_are_missing(table: Path, empty: Sequence[str]) -> None:
    features = applied(table, [serialized(row, () if "age" in row else empty) for row in TABLE])
    np.testing.assert_allclose(features["age"][:, 0], [-np.sqrt(1.5), 0, 0, np.sqrt(1.5)], rtol=1e-6)
    assert features["city"].tolist() == [[2], [1], [0], [1]]
    assert features["paid"].tolist() == [1, 0, 1, 0]


def test_analysis_takes_present_but_empty_lists(tmp_path: Path, table: Path) -> None:
    records = [serialized(row, [name for name in ("age",) if name not in row]) for row in TABLE]
    run(tmp_path, records, TABLE_SCHEMA, TABLE_FEATURES)
    np.testing.assert_array_equal(applied(tmp_path, records)["age"], applied(table, records)["age"])


def test_values_never_seen_in_training_are_out_of_vocabulary(table: Path) -> None:
    features = applied(table, [serialized({"age": 40.0, "city": b"Genf", "paid": b"perhaps"})])
    assert features["city"].tolist() == [[3]]
    assert features["paid"].tolist() == [-1]


def test_serving_needs_no_label(table: Path) -> None:
    features = applied(table, [serialized({"age": 40.0})], without=["paid"])
    assert {name: array.tolist() for name, array in features.items()} == {"age": [[0.0]], "city": [[0]]}


def test_classes_are_an_asset_of_the_graph_named_like_the_label(table: Path, images: Path) -> None:
    import tensorflow_transform as tft

    assert tft.TFTransformOutput(str(table / "transform_graph")).vocabulary_by_name("paid") == [b"no", b"yes"]
    assert tft.TFTransformOutput(str(images / "transform_graph")).vocabulary_by_name("label") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("split", ["train", "eval"])
def test_materialized_examples_equal_the_graph_applied(table: Path, split: str) -> None:
    in_graph = applied(table, [serialized(row) for row in TABLE])
    written = materialized(table, split)
    assert written.keys() == in_graph.keys()
    for name, values in written.items():
        np.testing.assert_array_equal(values, in_graph[name])


def test_images_of_any_size_are_decoded_in_tf_data(images: Path) -> None:
    records = [serialized({"image/encoded": png(gray, size), "label": 1}) for gray, size in ((7, 8), (90, 30))]
    features = applied(images, records)
    assert features["image"].shape == (2, 8, 8, 1)
    assert features["image"][:, 0, 0, 0].tolist() == [7.0, 90.0]
    assert features["label"].tolist() == [1, 1]


def test_images_can_be_materialized(images: Path) -> None:
    written = materialized(images, "train")
    assert written["image"].shape == (3, 8, 8, 1)
    assert written["image"][:, 4, 4, 0].tolist() == [160.0, 80.0, 0.0]
    assert written["label"].tolist() == [2, 1, 0]


def test_serving_images_needs_no_label(images: Path) -> None:
    records = [serialized({"image/encoded": png(7, 9)})]
    assert list(applied(images, records, without=["label"])) == ["image"]


def component(**options: Any) -> Any:
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components.transform.component import Transform

    examples, schema = standard_artifacts.Examples(), standard_artifacts.Schema()
    return Transform(channel_utils.as_channel([examples]), channel_utils.as_channel([schema]), **options)


def test_it_is_a_tfx_transform() -> None:
    import tfx.components

    assert isinstance(component(features=TABLE_FEATURES), tfx.components.Transform)
    assert component(features=TABLE_FEATURES).id == "Transform"


def test_outputs_are_only_what_was_asked_for() -> None:
    assert set(component(features=TABLE_FEATURES).outputs) == {"transform_graph"}
    assert set(component(features=TABLE_FEATURES, materialize=True).outputs) == {
        "transform_graph",
        "transformed_examples",
    }


def test_nothing_to_do_is_an_error() -> None:
    with pytest.raises(InfeedError, match="Transform has nothing to do"):
        component()


def test_a_function_that_does_not_exist_is_an_error_before_anything_runs() -> None:
    with pytest.raises(InfeedError, match="defines no function 'missing'"):
        component(preprocessing_fn=f"{__file__}:missing")


def test_an_edited_function_changes_the_cache_key(tmp_path: Path) -> None:
    source = tmp_path / "own.py"
    source.write_text("def fn(inputs): return {}")
    before = dict(component(preprocessing_fn=f"{source}:fn").exec_properties)
    source.write_text("def fn(inputs): return {'x': inputs['x']}")
    assert dict(component(preprocessing_fn=f"{source}:fn").exec_properties) != before
