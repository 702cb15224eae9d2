from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from infeed import components
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions, ShardOptions, Spans
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.example_gen.sources.csv_rows import CsvOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


@pytest.fixture(scope="session")
def executor() -> Any:
    """The module, which imports TFX."""
    from infeed.components.example_gen import executor

    return executor


def properties(
    input_base: str, pattern: str = "*", options: IngestOptions | None = None, form: str = "csv", **changes: Any
) -> dict[str, Any]:
    """exec_properties as TFX hands them to an executor."""
    from tfx.components.example_gen import utils
    from tfx.proto import example_gen_pb2
    from tfx.utils import proto_utils

    from infeed.components.example_gen import executor

    input_config = utils.make_default_input_config(pattern)
    protos = {
        "input_config": input_config,
        "output_config": utils.make_default_output_config(input_config),
        "custom_config": executor.pack(form, options or IngestOptions(), {}),
    }
    given = {name: proto_utils.proto_to_json(proto) for name, proto in {**protos, **changes}.items()}
    formats = {
        "output_data_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
        "output_file_format": example_gen_pb2.FORMAT_TFRECORDS_GZIP,
    }
    return {"input_base": input_base, **formats, **given}


def execute(executor: Any, root: Path, exec_properties: dict[str, Any]) -> Any:
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri = str(root)
    executor().Do({}, {"examples": [artifact]}, exec_properties)
    return artifact


def test_properties_become_one_typed_request(executor: Any) -> None:
    options = IngestOptions(compression="none", shards=ShardOptions(count=2))
    request = executor.Request.of(
        properties("/data", "*.csv", options, custom_config=executor.pack("csv", options, asdict(CsvOptions(";"))))
    )
    assert request.format == "csv"
    assert request.input_base == "/data"
    assert request.patterns == {None: "*.csv"}
    assert request.splits == ("train", "eval")
    assert request.buckets == Buckets((("train", 2), ("eval", 1)))
    assert request.options == options
    assert CsvOptions(**request.source) == CsvOptions(";")


def test_input_that_is_split_keeps_its_splits(executor: Any) -> None:
    from tfx.proto import example_gen_pb2

    config = example_gen_pb2.Input(
        splits=[{"name": "train", "pattern": "train/*"}, {"name": "test", "pattern": "test/*"}]
    )
    request = executor.Request.of(properties("/data", input_config=config, output_config=example_gen_pb2.Output()))
    assert request.patterns == {"train": "train/*", "test": "test/*"}
    assert (request.splits, request.buckets) == (("train", "test"), None)


def test_of_several_input_splits_one_is_divided_further(executor: Any) -> None:
    from tfx.proto import example_gen_pb2

    def request(*names: str) -> Any:
        inputs = example_gen_pb2.Input(splits=[{"name": name, "pattern": f"{name}/*"} for name in names])
        shares = [{"name": "train", "hash_buckets": 4}, {"name": "eval", "hash_buckets": 1}]
        output = example_gen_pb2.Output(split_config=example_gen_pb2.SplitConfig(splits=shares))
        return executor.Request.of(properties("/data", input_config=inputs, output_config=output))

    found = request("train", "test")
    assert found.patterns == {None: "train/*", "test": "test/*"}
    assert found.splits == ("train", "eval", "test")
    for names in (("a", "b"), ("train", "eval"), ("train", "test", "test")):
        with pytest.raises(InfeedError, match="train, eval"):
            request(*names)


def test_a_split_of_the_input_keeps_its_rows_while_another_is_divided(tmp_path: Path, executor: Any) -> None:
    from tfx.proto import example_gen_pb2

    for name, rows in (("train", 40), ("test", 7)):
        lines = "".join(f"{name}{number},{'ab'[number % 2]}\n" for number in range(rows))
        (tmp_path / f"{name}.csv").write_text("x,y\n" + lines)
    inputs = example_gen_pb2.Input(splits=[{"name": name, "pattern": f"{name}.csv"} for name in ("train", "test")])
    shares = [{"name": "train", "hash_buckets": 3}, {"name": "eval", "hash_buckets": 1}]
    output = example_gen_pb2.Output(split_config=example_gen_pb2.SplitConfig(splits=shares))
    for rule in (None, ByLabel("y")):
        root = tmp_path / f"out-{rule and rule.how}"
        asked = properties(
            str(tmp_path), options=IngestOptions(split_by=rule), input_config=inputs, output_config=output
        )
        execute(executor.Executor, root, asked)
        found = {name: split.records for name, split in Manifest.read(str(root)).splits.items()}
        assert found["test"] == 7
        assert found["train"] + found["eval"] == 40
        assert found["eval"] == 10 if rule else found["eval"] > 0


def test_without_options_of_ours_the_defaults_hold(executor: Any) -> None:
    assert executor.Request.of({**properties("/data"), "custom_config": None}).options == IngestOptions()


def test_a_payload_that_is_not_written_here(executor: Any) -> None:
    from tfx.proto import example_gen_pb2

    with pytest.raises(InfeedError, match="output_data_format is FORMAT_PARQUET"):
        executor.Request.of({**properties("/data"), "output_data_format": example_gen_pb2.FORMAT_PARQUET})


def test_the_artifact_says_what_tfxs_own_says(cancer: str, tmp_path: Path, executor: Any) -> None:
    from tfx.components.example_gen.csv_example_gen import executor as oracle

    ours = execute(executor.Executor, tmp_path / "ours", properties(cancer))
    theirs = execute(oracle.Executor, tmp_path / "theirs", properties(cancer))
    ours.uri = theirs.uri = ""
    assert ours.mlmd_artifact == theirs.mlmd_artifact
    assert sorted(os.listdir(tmp_path / "ours")) == [
        "Split-eval",
        "Split-train",
        "manifest.json",
        "statistics-eval.json",
        "statistics-train.json",
    ]
    assert Manifest.read(str(tmp_path / "ours")).rows_read == 569


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_tfxs_reader_reads_every_record_once(
    digits: str, tmp_path: Path, read_split: Callable[[str, str], list[bytes]], compression: Any, executor: Any
) -> None:
    import tensorflow as tf
    from tfx.components.util import tfxio_utils
    from tfx_bsl.tfxio import dataset_options

    options = IngestOptions(compression=compression, shards=ShardOptions(count=3))
    artifact = execute(executor.Executor, tmp_path / "out", properties(digits, "*/*", options, "images"))
    factory = tfxio_utils.get_tf_dataset_factory_from_artifact([artifact], [])
    pattern = [f"{artifact.uri}/Split-{split}/*" for split in ("train", "eval")]
    assert len(os.listdir(f"{artifact.uri}/Split-train")) == 3

    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = schema_pb2.Schema(feature=[{"name": "image/filename", "type": schema_pb2.BYTES}])
    seen = []
    for one in pattern:
        dataset = factory([one], dataset_options.TensorFlowDatasetOptions(batch_size=16, num_epochs=1), schema)
        for batch in dataset:
            seen += tf.sparse.to_dense(batch["image/filename"]).numpy().ravel().tolist()
    assert len(seen) == len(set(seen)) == 120
    by_hand = [
        tf.train.Example.FromString(record).features.feature["image/filename"].bytes_list.value[0]
        for split in ("train", "eval")
        for record in read_split(artifact.uri, split)
    ]
    assert sorted(seen) == sorted(by_hand)


def test_values_survive_and_nulls_are_missing(
    tmp_path: Path, read_split: Callable[[str, str], list[bytes]], executor: Any
) -> None:
    import tensorflow as tf

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("i,f,s\n0,0.0,x\n,,\n-1,-0.0,false\n")
    execute(executor.Executor, tmp_path / "out", properties(f"{tmp_path}/in"))
    records = [record for split in ("train", "eval") for record in read_split(f"{tmp_path}/out", split)]
    spec = {
        "i": tf.io.FixedLenFeature([], tf.int64, default_value=99),
        "f": tf.io.FixedLenFeature([], tf.float32, default_value=99.0),
        "s": tf.io.FixedLenFeature([], tf.string, default_value="none"),
    }
    parsed = tf.io.parse_example(tf.constant(records), spec)
    rows = sorted(zip(*(parsed[name].numpy().tolist() for name in "ifs"), strict=True))
    assert rows == [(-1, -0.0, b"false"), (0, 0.0, b"x"), (99, 99.0, b"none")]


def test_bad_input_is_our_error_also_through_beam(digits: str, tmp_path: Path, executor: Any) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "a.png").write_text("meow")
    with pytest.raises(InfeedError, match=r"(?s)not an image.*cat/a\.png"):
        execute(executor.Executor, tmp_path / "out", properties(f"{tmp_path}/in", "*/*", form="images"))
    assert not list((tmp_path / "out").rglob("*"))
    with pytest.raises(InfeedError, match="no files found"):
        execute(executor.Executor, tmp_path / "out", properties(digits, "*.csv"))


def trips(folder: Path, files: int = 3) -> str:
    folder.mkdir()
    for number in range(files):
        rows = "".join(f"{row},{row * number / 7},w{row % 5}\n" for row in range(500))
        (folder / f"{number}.csv").write_text(f"id,fare,word\n{rows}")
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "place"),
    [
        ("portable_options", "on Beam's PortableRunner"),
        pytest.param("dask_options", "on Beam's DaskRunner", marks=pytest.mark.image),
        pytest.param("spark_options", "on Beam's PySparkRunner", marks=pytest.mark.image),
        pytest.param(["--direct_num_workers=2"], "on 2 processes", marks=pytest.mark.image),
        (["--runner=DirectRunner"], "in this process"),
    ],
)
def test_every_engine_writes_the_same(
    options: list[str] | str,
    place: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from infeed.components.example_gen.executor import Executor

    source, written = trips(tmp_path / "in"), {}
    named = request.getfixturevalue(options) if isinstance(options, str) else options
    for name, given in {"far": named, "near": []}.items():
        context = Executor.Context(beam_pipeline_args=given)
        execute(lambda context=context: Executor(context), tmp_path / name, properties(source))
        written[name] = {
            str(path.relative_to(tmp_path / name)): path.read_bytes() for path in (tmp_path / name).rglob("*.*")
        }
    assert f"reads 3 tasks, 29 kB, {place}: " in caplog.text
    assert written["far"] == written["near"]
    assert {"manifest.json", "statistics-train.json"} <= written["far"].keys()


@pytest.mark.slow
@pytest.mark.image
def test_threads_of_one_process_write_the_same(tmp_path: Path, threaded_options: list[str]) -> None:
    from infeed.components.example_gen.executor import Executor

    source, written = trips(tmp_path / "in", files=40), []
    for name, given in (("near", []), ("once", threaded_options), ("twice", threaded_options)):
        context = Executor.Context(beam_pipeline_args=given)
        execute(lambda context=context: Executor(context), tmp_path / name, properties(source))
        here = tmp_path / name
        written.append({str(path.relative_to(here)): path.read_bytes() for path in here.rglob("*.*")})
    assert written[1:] == [written[0]] * 2
    assert {"manifest.json", "statistics-train.json"} <= written[0].keys()


def test_a_source_of_ones_own_is_read_in_this_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import pyarrow as pa

    from infeed.components.example_gen.executor import FileExecutor

    class Lines(FileExecutor):  # of no module that another process could import
        KIND = "lines"

        @staticmethod
        def read(path: str) -> Any:
            yield pa.RecordBatch.from_pydict({"line": Path(path).read_text().split()})

    context = Lines.Context(beam_pipeline_args=["--direct_num_workers=2"])
    root = tmp_path / "out"
    execute(lambda: Lines(context), root, properties(trips(tmp_path / "in"), form=""))
    assert "in this process: a custom executor reads the source" in caplog.text
    assert Manifest.read(str(root)).rows_read == 3 * 501


def test_a_window_of_spans_is_one_dataset_and_the_artifact_names_the_latest(tmp_path: Path, executor: Any) -> None:
    artifacts = []
    for number in (7, 8, 9):
        span = tmp_path / "data" / f"span-{number}"
        span.mkdir(parents=True)
        (span / "rows.csv").write_text("x,y\n" + f"{number},a\n" * 12)
        options = IngestOptions(spans=Spans("span-{SPAN}/*.csv", last=2, cache=str(tmp_path / "spans")))
        given = properties(str(tmp_path / "data"), "span-*/*.csv", options)
        artifacts.append(execute(executor.Executor, tmp_path / f"examples-{number}", given))
    assert artifacts[-1].get_int_custom_property("span") == 9
    assert [Manifest.read(one.uri).rows_read for one in artifacts] == [12, 24, 24]
    assert sorted(one.name.partition("-")[0] for one in (tmp_path / "spans").iterdir()) == ["7", "8", "9"]


def save_model(path: Path) -> None:
    """Doubles `mean_radius`, or 0 where it is missing; takes serialized examples."""
    import tensorflow as tf

    class Double(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])  # type: ignore[misc]
        def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
            spec = {"mean_radius": tf.io.FixedLenFeature([], tf.float32, default_value=0.0)}
            return {"doubled": 2 * tf.io.parse_example(examples, spec)["mean_radius"]}

    module = Double()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_bulk_inferrer_reads_every_record(cancer: str, tmp_path: Path, compression: str) -> None:
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2
    from tfx.components.bulk_inferrer.executor import Executor
    from tfx.proto import bulk_inferrer_pb2
    from tfx.types import standard_artifacts
    from tfx.utils import path_utils, proto_utils

    examples, model, results = (
        standard_artifacts.Examples(),
        standard_artifacts.Model(),
        standard_artifacts.InferenceResult(),
    )
    examples.uri, model.uri, results.uri = (str(tmp_path / name) for name in ("examples", "model", "results"))
    component = components.CsvExampleGen(cancer, options=IngestOptions(ShardOptions(count=3), compression=compression))
    component.executor_spec.executor_class().Do({}, {"examples": [examples]}, component.exec_properties)
    save_model(Path(path_utils.serving_model_path(model.uri)))

    properties = {
        "model_spec": proto_utils.proto_to_json(bulk_inferrer_pb2.ModelSpec()),
        "data_spec": proto_utils.proto_to_json(bulk_inferrer_pb2.DataSpec()),
    }
    Executor().Do({"examples": [examples], "model": [model]}, {"inference_result": [results]}, properties)
    found = tf.data.TFRecordDataset([str(path) for path in Path(results.uri).rglob("*.gz")], "GZIP")
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in found.as_numpy_iterator()]
    assert sum(len(log.predict_log.response.outputs["doubled"].float_val) for log in logs) == 569
