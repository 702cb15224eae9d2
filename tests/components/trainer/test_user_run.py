"""A run_fn of the user's own: fed by the engine, measured, and otherwise as under TFX's Trainer."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed.components.feed.options import FeedOptions

pytestmark = pytest.mark.tfx

SCHEMA = """
feature { name: "x" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "z" type: FLOAT }
feature { name: "kind" type: BYTES shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "n" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
"""
# As people write them for TFX: the data by TFX's accessor, Keras' own fit, Keras' own export.
MODULE = """
import keras
import tensorflow as tf
from tfx_bsl.public import tfxio
from tfx.utils import io_utils
from tensorflow_metadata.proto.v0 import schema_pb2

def _data(fn_args, files, **options):
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    return fn_args.data_accessor.tf_dataset_factory(
        files, tfxio.TensorFlowDatasetOptions(batch_size=16, label_key="n", **options), schema
    )

def run_fn(fn_args):
    assert fn_args.custom_config == {"units": 1}
    x = keras.Input([1], name="x")
    model = keras.Model({"x": x}, keras.layers.Dense(fn_args.custom_config["units"])(x))
    model.compile(keras.optimizers.Adam(0.1), "mse")
    only_x = lambda features, label: ({"x": features["x"]}, label)
    model.fit(
        _data(fn_args, fn_args.train_files).map(only_x),
        steps_per_epoch=4,
        epochs=3,
        validation_data=_data(fn_args, fn_args.eval_files, shuffle=False, num_epochs=1).map(only_x),
    )
    model.export(fn_args.serving_model_dir)
"""


@pytest.fixture(scope="module")
def place(table: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table as an Examples artifact, its schema, and the module."""
    folder = tmp_path_factory.mktemp("user_run")
    (folder / "schema").mkdir()
    (folder / "schema" / "schema.pbtxt").write_text(SCHEMA)
    (folder / "user.py").write_text(MODULE)
    (folder / "examples").symlink_to(table[0])
    return folder


def fn_args(place: Path, *, graph: str | None = None) -> Any:
    from tfx.components.trainer.fn_args_utils import DataAccessor, FnArgs
    from tfx.components.util import tfxio_utils

    factory = tfxio_utils.get_tf_dataset_factory_from_artifact([examples(place)], ["Trainer"])
    return FnArgs(
        train_files=[f"{place}/examples/Split-train/*"],
        eval_files=[f"{place}/examples/Split-eval/*"],
        schema_path=str(place / "schema" / "schema.pbtxt"),
        transform_graph_path=graph,
        data_accessor=DataAccessor(factory, None, None),
    )


def examples(place: Path) -> Any:
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(place / "examples"), '["train", "eval"]'
    return artifact


def both(place: Path, **options: Any) -> tuple[Any, Any]:
    """TFX's dataset and ours for the same arguments."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.public import tfxio

    from infeed.components.trainer.user_run import UserRun

    args = fn_args(place)
    theirs, run = args.data_accessor.tf_dataset_factory, UserRun(args)
    asked = tfxio.TensorFlowDatasetOptions(batch_size=16, **{"label_key": "n", **options})
    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    assert args.data_accessor.tf_dataset_factory == run.tf_dataset_factory
    return theirs(args.train_files, asked, schema), run.tf_dataset_factory(args.train_files, asked, schema)


def rows(batches: Any) -> list[Any]:
    """All values of each row, however the batches came."""
    import tensorflow as tf

    found = []
    for features, label in batches:
        z = tf.sparse.to_dense(tf.sparse.reset_shape(features["z"], [len(label), 1]), -1.0)
        columns = features["x"], z, features["kind"], label
        found += zip(*(column.numpy().ravel().tolist() for column in columns), strict=True)
    return found


def test_reading_once_gives_the_rows_of_tfx_in_their_order(place: Path) -> None:
    theirs, ours = both(place, shuffle=False, num_epochs=1)
    assert rows(ours) == rows(theirs)


def test_reading_without_end_gives_the_same_rows_in_every_epoch_in_whole_batches(place: Path) -> None:
    theirs, ours = both(place)
    steps = 64 // 16
    once, twice = rows(ours.take(steps)), rows(ours.take(2 * steps).skip(steps))
    assert sorted(once) == sorted(twice) == sorted(rows(both(place, shuffle=False, num_epochs=1)[0]))
    assert once != twice
    for mine, other in zip(ours.element_spec[0].items(), theirs.element_spec[0].items(), strict=True):
        assert mine[0] == other[0]
        assert mine[1].is_compatible_with(other[1])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_epochs": 1}, r"shuffle=True, num_epochs=1, drop_final_batch=False"),
        ({"num_epochs": 2, "shuffle": False}, r"num_epochs=2"),
        ({"label_key": None}, r"no label_key"),
    ],
)
def test_what_the_engine_would_do_otherwise_is_read_by_tfx_and_said(
    place: Path, caplog: pytest.LogCaptureFixture, options: Any, reason: str
) -> None:
    with caplog.at_level(logging.WARNING):
        both(place, **options)
    assert "TFX's own reader reads" in caplog.text
    assert reason in caplog.text


def test_datasets_by_one_call_come_through_the_transform_graph(place: Path, table: Any) -> None:
    from infeed.components import datasets

    data = datasets(
        fn_args(place, graph=str(table[0] / "class" / "graph")), label="kind", feed=FeedOptions(batch_size=16)
    )
    features, label = next(iter(data.train))
    assert set(features) == {"x", "z", "n"} & set(features) | {"x", "z"}
    assert label.shape == (16,)
    assert data.steps_per_epoch == 4
    assert data.classes == ("big", "small")
    assert sum(len(label) for _, label in data.evaluation) == 32


def test_datasets_take_the_transform_output_that_a_run_fn_holds(place: Path, table: Any) -> None:
    import tensorflow_transform as tft

    from infeed.components import datasets

    output, feed = tft.TFTransformOutput(str(table[0] / "class" / "graph")), FeedOptions(batch_size=16)
    held = datasets(fn_args(place), output, label="kind", feed=feed)
    named = datasets(fn_args(place, graph=str(table[0] / "class" / "graph")), label="kind", feed=feed)
    assert held.classes == named.classes == ("big", "small")
    assert held.train.element_spec == named.train.element_spec
    labels = [[label.numpy().tolist() for _, label in one.train.take(4)] for one in (held, named)]
    assert labels[0] == labels[1]


def test_handing_over_is_measured_for_batches_of_any_kind() -> None:
    import tensorflow as tf

    from infeed.components.trainer.user_run import measure_handover

    spec = (
        {
            "dense": tf.TensorSpec([None, 3], tf.float32),
            "text": tf.TensorSpec([16], tf.string),
            "ragged": tf.RaggedTensorSpec([16, None], tf.int64),
            "sparse": tf.SparseTensorSpec([None, None], tf.float32),
        },
        tf.TensorSpec([16], tf.int64),
    )
    assert 0 < measure_handover(spec, 16) < 1


def test_datasets_without_a_transform_graph_are_the_raw_examples(place: Path) -> None:
    from infeed.components import datasets

    data = datasets(fn_args(place), label="n", task="regression", feed=FeedOptions(batch_size=16))
    features, label = next(iter(data.train))
    assert set(features) == {"x", "z", "kind"}
    assert np.allclose(label, 2 * features["x"][:, 0])


def test_the_feed_has_the_same_columns_in_each_split(tmp_path: Path) -> None:
    """`late` has values in eval alone, `early` in train alone."""
    import tensorflow as tf
    import tensorflow_data_validation as tfdv
    from google.protobuf import text_format

    import infeed
    from infeed.components.dataset.statistics.table_statistics import table_of
    from infeed.components.dataset.statistics.tfdv import StatisticsRequest
    from infeed.components.statistics.component import describe
    from infeed.components.statistics.schema import keep_columns

    lines = ["x,y,early,late,split"]
    lines += [f"{row / 2},{row}.5,{row},,train" for row in range(40)]
    lines += [f"{row / 2},{row}.5,,{'word' if row == 3 else ''},eval" for row in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    by_name = infeed.IngestOptions(columns=("x", "y", "early", "late"), split_by=infeed.ByName("split"))
    infeed.ingest(tmp_path / "t.csv", tmp_path / "out", options=by_name)
    tables = [table_of(str(tmp_path / "out"), split) for split in ("train", "eval")]
    statistics = [describe(table, StatisticsRequest.of(None)) for table in tables]
    schema = tfdv.update_schema(tfdv.infer_schema(statistics[0]), statistics[1])
    keep_columns(schema, statistics)
    (tmp_path / "schema.pbtxt").write_text(text_format.MessageToString(schema))
    files = {f"{name}_files": [f"{tmp_path}/out/Split-{name}/*"] for name in ("train", "eval")}
    given = SimpleNamespace(
        **files, schema_path=f"{tmp_path}/schema.pbtxt", transform_graph_path=None, train_steps=2, data_accessor=None
    )
    data = infeed.datasets(given, label="y", task="regression", feed=FeedOptions(batch_size=8))

    kinds = [
        {name: (type(spec), spec.dtype) for name, spec in split.element_spec[0].items()}
        for split in (data.train, data.evaluation)
    ]
    assert kinds[0] == kinds[1]
    assert kinds[0] == {
        "x": (tf.TensorSpec, tf.float32),
        "early": (tf.SparseTensorSpec, tf.int64),
        "late": (tf.SparseTensorSpec, tf.string),
    }
    assert len(next(iter(data.train))[0]["late"].values) == 0
    assert sum(len(features["late"].values) for features, _ in data.evaluation) == 1


def test_tfx_calls_the_users_run_fn_and_the_run_gets_its_profile(place: Path, tmp_path: Path) -> None:
    from tfx.types import standard_artifacts

    from infeed.components.dataset.input_profile import read_profile
    from infeed.components.trainer.executor import TrainerExecutor

    schema, model, run = standard_artifacts.Schema(), standard_artifacts.Model(), standard_artifacts.ModelRun()
    schema.uri, model.uri, run.uri = (str(place / "schema"), str(tmp_path / "model"), str(tmp_path / "run"))
    properties = {"train_args": "{}", "eval_args": "{}", "custom_config": json.dumps({"units": 1})}
    TrainerExecutor().Do(
        {"examples": [examples(place)], "schema": [schema]},
        {"model": [model], "model_run": [run]},
        {**properties, "module_file": str(place / "user.py")},
    )
    assert (tmp_path / "model" / "Format-Serving" / "saved_model.pb").exists()
    profile = read_profile(str(tmp_path / "run" / "input_profile.json"))
    assert [epoch.steps for epoch in profile.epochs] == [4, 4, 4]
    assert profile.batch_size == 16
    assert profile.ceiling is None
    assert profile.floor_seconds == profile.handover_seconds > 0
    assert profile.plan.tier == "columns"
    assert all(0 < epoch.wait_seconds <= epoch.seconds for epoch in profile.epochs)
