"""The component and its executor: what they write can be applied in tf.data, served, and read materialised.

Covers `declared` and `rows`, which do it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.image import DecodeImage
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore
from infeed.components.transform.kinds.vectors import PretrainedVectors

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

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
def run(execute: Callable[..., Any]) -> Callable[..., Path]:
    """Runs our component on one file in "train" and "eval"; gives the folder of its outputs."""
    from infeed.components.transform.component import Transform

    def run_it(
        folder: Path, records: Sequence[bytes], schema: str, features: Sequence[Feature], **options: Any
    ) -> Path:
        execute(Transform, folder, [{"train": records, "eval": records}], schema, features=features, **options)
        return folder

    return run_it


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, run: Callable[..., Path]) -> Path:
    records = [serialized(row) for row in TABLE]
    return run(tmp_path_factory.mktemp("table"), records, TABLE_SCHEMA, TABLE_FEATURES, materialize=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory, run: Callable[..., Path]) -> Path:
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


def test_analysis_takes_present_but_empty_lists(tmp_path: Path, table: Path, run: Callable[..., Path]) -> None:
    records = [serialized(row, [name for name in ("age",) if name not in row]) for row in TABLE]
    run(tmp_path, records, TABLE_SCHEMA, TABLE_FEATURES)
    np.testing.assert_array_equal(applied(tmp_path, records)["age"], applied(table, records)["age"])


def test_what_a_feature_cannot_take_is_told_with_values(tmp_path: Path, run: Callable[..., Path]) -> None:
    records = [serialized(row) for row in TABLE]
    with pytest.raises(
        InfeedError, match=r"ZScore needs .*text\n  where: ZScore\(column='city'\); column 'city' holds b'Ba"
    ):
        run(tmp_path, records, TABLE_SCHEMA, [ZScore("city")])


def test_rows_of_several_values_are_told_with_values(tmp_path: Path, run: Callable[..., Path]) -> None:
    import tensorflow as tf

    example = tf.train.Example.FromString(serialized({"age": 1.0}))
    example.features.feature["age"].float_list.value.append(2.0)
    with pytest.raises(
        InfeedError, match=r"rows have several values.*\n  where: column 'age'; column 'age' holds 1.0, 2.0"
    ):
        run(tmp_path, [example.SerializeToString()], TABLE_SCHEMA, [ZScore("age")])


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


def test_statistics_of_declared_features_take_no_beam(tmp_path: Path, run: Callable[..., Path]) -> None:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

    def described(when: str) -> tuple[int, dict[str, Any]]:
        content = (tmp_path / f"{when}_transform_stats" / "FeatureStats.pb").read_bytes()
        (dataset,) = statistics_pb2.DatasetFeatureStatisticsList.FromString(content).datasets
        return dataset.num_examples, {feature.path.step[0]: feature for feature in dataset.features}

    def schema(when: str) -> Any:
        return text_format.Parse(
            (tmp_path / f"{when}_transform_schema" / "schema.pbtxt").read_text(), schema_pb2.Schema()
        )

    run(tmp_path, [serialized(row) for row in TABLE], TABLE_SCHEMA, TABLE_FEATURES[:2], disable_statistics=False)
    rows, before = described("pre")
    assert rows == len(TABLE)
    assert before.keys() == {"age", "city"}  # what the features are made of, and nothing else
    assert before["age"].num_stats.mean == 40
    assert before["city"].string_stats.common_stats.num_missing == 1
    rows, after = described("post")
    assert rows == 2 * len(TABLE)
    np.testing.assert_allclose([after["age"].num_stats.mean, after["age"].num_stats.max], [0, np.sqrt(1.5)], atol=1e-6)
    assert [(one.value, one.frequency) for one in after["city"].string_stats.top_values] == [
        ("1", 4),
        ("2", 2),
        ("0", 2),
    ]
    assert schema("pre") == text_format.Parse(TABLE_SCHEMA, schema_pb2.Schema())
    assert [(one.name, one.int_domain.is_categorical) for one in schema("post").feature] == [
        ("age", False),
        ("city", True),
    ]
    anomalies = anomalies_pb2.Anomalies.FromString(
        (tmp_path / "post_transform_anomalies" / "SchemaDiff.pb").read_bytes()
    )
    assert not anomalies.anomaly_info


STATISTICS = {
    "pre_transform_schema",
    "pre_transform_stats",
    "post_transform_schema",
    "post_transform_stats",
    "post_transform_anomalies",
}


def component(kind: type | None = None, **options: Any) -> Any:
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components.transform.component import Transform

    examples, schema = standard_artifacts.Examples(), standard_artifacts.Schema()
    return (kind or Transform)(channel_utils.as_channel([examples]), channel_utils.as_channel([schema]), **options)


def test_it_is_a_tfx_transform() -> None:
    import tfx.components

    assert isinstance(component(features=TABLE_FEATURES), tfx.components.Transform)
    assert component(features=TABLE_FEATURES).id == "Transform"


def test_with_features_outputs_are_only_what_is_asked_for() -> None:
    from tfx.types import channel_utils, standard_artifacts

    def outputs(**options: Any) -> set[str]:
        return set(component(features=TABLE_FEATURES, **options).outputs) - {"transform_graph"}

    cache = channel_utils.as_channel([standard_artifacts.TransformCache()])
    assert outputs() == set()
    assert outputs(materialize=True) == {"transformed_examples"}
    assert outputs(disable_statistics=False) == outputs(stats_options_updater_fn=f"{__file__}:serialized") == STATISTICS
    assert outputs(disable_analyzer_cache=False) == outputs(analyzer_cache=cache) == {"updated_analyzer_cache"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"materialize": False},
        {"disable_statistics": True},
        {"disable_analyzer_cache": True},
        {"materialize": False, "disable_statistics": True, "disable_analyzer_cache": True},
    ],
    ids=str,
)
def test_without_features_outputs_are_those_of_tfx(options: dict[str, bool]) -> None:
    import tfx.components

    function = "tfx.experimental.templates.taxi.models.preprocessing.preprocessing_fn"
    ours = component(preprocessing_fn=function, **options)
    theirs = component(tfx.components.Transform, preprocessing_fn=function, **options)
    assert {name: channel.type for name, channel in ours.outputs.items()} == {
        name: channel.type for name, channel in theirs.outputs.items()
    }
    differ = {name for name in theirs.exec_properties if ours.exec_properties[name] != theirs.exec_properties[name]}
    assert differ == {"custom_config"}


def test_nothing_to_do_is_an_error() -> None:
    with pytest.raises(InfeedError, match="Transform has no features"):
        component()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preprocessing_fn": f"{__file__}:missing"}, "defines no function 'missing'"),
        ({"preprocessing_fn": "nowhere.models.preprocessing_fn"}, "there is no module 'nowhere.models'"),
        ({"preprocessing_fn": __file__}, r"(?s)does not name a function.*option preprocessing_fn"),
        ({"module_file": __file__}, "(?s)defines no function 'preprocessing_fn'.*option module_file"),
        ({"module_file": "/nowhere/a.py"}, "there is no file /nowhere/a.py"),
        ({"module_file": "models.preprocessing"}, "(?s)not a Python file.*preprocessing_fn"),
        ({"module_file": "a.py", "preprocessing_fn": "a:b"}, "module_file and preprocessing_fn are both set"),
        (
            {"module_file": "a.py", "stats_options_updater_fn": "a:b"},
            "(?s)together with module_file.*in the module file",
        ),
        ({"features": TABLE_FEATURES, "stats_options_updater_fn": "a.b.c"}, "option stats_options_updater_fn"),
        ({"features": TABLE_FEATURES, "custom_config": {"a": 1}}, "custom_config is set"),
        ({"features": TABLE_FEATURES, "force_tf_compat_v1": True}, r"(?s)force_tf_compat_v1.*tfx.components.Transform"),
    ],
)
def test_what_cannot_run_is_an_error_before_anything_runs(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        component(**options)


def test_a_cache_that_is_given_and_disabled_is_an_error() -> None:
    from tfx.types import channel_utils, standard_artifacts

    cache = channel_utils.as_channel([standard_artifacts.TransformCache()])
    with pytest.raises(InfeedError, match="analyzer_cache is set, but disable_analyzer_cache is True"):
        component(features=TABLE_FEATURES, analyzer_cache=cache, disable_analyzer_cache=True)


@pytest.mark.parametrize("option", ["preprocessing_fn", "module_file", "stats_options_updater_fn"])
@pytest.mark.parametrize("edited", ["own.py", "neighbor.py"])
def test_an_edited_source_changes_the_cache_key(option: str, edited: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import neighbor\ndef preprocessing_fn(inputs): return {}\n")
    (tmp_path / "neighbor.py").write_text("")
    given = f"{tmp_path}/own.py" if option == "module_file" else f"{tmp_path}/own.py:preprocessing_fn"

    def key() -> dict[str, Any]:
        return dict(component(features=TABLE_FEATURES, **{option: given}).exec_properties)

    before = key()
    assert key() == before
    with (tmp_path / edited).open("a") as source:
        source.write("# edited\n")
    assert key() != before


def test_an_edited_file_of_a_feature_changes_the_cache_key(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("Basel 1 0\n")

    def key() -> dict[str, Any]:
        return dict(component(features=[PretrainedVectors("city", str(vectors))]).exec_properties)

    before = key()
    assert key() == before
    vectors.write_text("Basel 0 1\n")
    assert key() != before


def test_the_function_may_be_a_runtime_parameter() -> None:
    from tfx.orchestration.data_types import RuntimeParameter

    parameter = RuntimeParameter("function", str)
    assert component(preprocessing_fn=parameter).exec_properties["preprocessing_fn"] is parameter
    assert component(module_file=parameter).exec_properties["module_file"] is parameter
