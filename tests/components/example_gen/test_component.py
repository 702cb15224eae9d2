from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infeed import components
from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions, ShardOptions
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.folders import TextOptions
from infeed.components.example_gen.sources.image_codec import ImageOptions
from infeed.components.example_gen.sources.jsonl import JsonlOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def request(component: Any) -> Any:
    from infeed.components.example_gen.executor import Request

    return Request.of(component.exec_properties)


def test_a_component_takes_what_tfxs_takes(tmp_path: Path) -> None:
    from tfx import types
    from tfx.components import CsvExampleGen as Theirs
    from tfx.components.example_gen import component
    from tfx.proto import example_gen_pb2, range_config_pb2

    config = example_gen_pb2.Input(splits=[{"name": "all", "pattern": "{SPAN}/*"}])
    spans = range_config_pb2.RangeConfig(rolling_range={"num_spans": 1})
    shares = example_gen_pb2.Output(split_config={"splits": [{"name": "a", "hash_buckets": 3}]})
    given = {"input_config": config, "output_config": shares, "range_config": spans}
    ours, theirs = components.CsvExampleGen(str(tmp_path), **given), Theirs(str(tmp_path), **given)
    assert isinstance(ours, component.FileBasedExampleGen)
    assert ours.driver_class is theirs.driver_class
    assert {**ours.exec_properties, "custom_config": None} == {**theirs.exec_properties, "custom_config": None}
    assert ours.outputs["examples"].type is theirs.outputs["examples"].type is types.standard_artifacts.Examples


def test_options_reach_the_executor(tmp_path: Path) -> None:
    options = IngestOptions(compat="tfx", shards=ShardOptions(count=4))
    asked = request(components.CsvExampleGen(str(tmp_path), options=options, csv=CsvOptions("\t")))
    assert asked.options == options
    assert CsvOptions(**asked.source) == CsvOptions("\t")


def test_each_sources_own_options_reach_its_executor(tmp_path: Path) -> None:
    from infeed.components.example_gen import component

    (tmp_path / "a").write_text("x")
    csv = CsvOptions(names=("a",), types={"a": "int"})
    images = ImageOptions("raw", (8, 8))
    assert CsvOptions(**request(component.CsvExampleGen(str(tmp_path), csv=csv)).source) == csv
    assert ImageOptions(**request(component.ImageExampleGen(str(tmp_path), images=images)).source) == images
    jsonl = request(component.JsonlExampleGen(str(tmp_path), jsonl=JsonlOptions("latin-1")))
    assert (jsonl.patterns, JsonlOptions(**jsonl.source)) == ({None: "*"}, JsonlOptions("latin-1"))
    text = request(component.TextExampleGen(str(tmp_path), text=TextOptions("file")))
    assert (text.patterns, text.source) == ({None: "*"}, {"unit": "file", "encoding": "utf-8"})
    binary = request(component.BinaryExampleGen(str(tmp_path / "later")))
    assert (binary.patterns, binary.source) == ({None: "*/*"}, {})


def test_an_image_that_a_csv_names_is_seen_by_tfxs_cache(tmp_path: Path) -> None:
    def config() -> str:
        return str(components.ImageExampleGen(str(tmp_path)).exec_properties["custom_config"])

    (tmp_path / "1.png").write_bytes(b"1")
    (tmp_path / "labels.csv").write_text("path,label\n1.png,cat\n")
    before = config()
    assert config() == before
    (tmp_path / "1.png").write_bytes(b"12")
    assert config() != before
    (tmp_path / "1.png").unlink()  # which the executor tells
    assert "fingerprint" not in config()


def test_images_are_looked_for_where_they_lie(tmp_path: Path) -> None:
    assert request(components.ImageExampleGen(str(tmp_path))).patterns == {None: "*/*"}
    assert request(components.ImageExampleGen("gs://not/there/yet")).patterns == {None: "*/*"}
    (tmp_path / "labels.csv").write_text("path,label\n1.png,cat\n")
    assert request(components.ImageExampleGen(str(tmp_path))).patterns == {None: "labels.csv"}


def run(pipeline_root: Path, components: list[Any]) -> None:
    from tfx.orchestration import metadata, pipeline
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner

    connection = metadata.sqlite_metadata_connection_config(f"{pipeline_root}/metadata.sqlite")
    LocalDagRunner().run(pipeline.Pipeline("p", str(pipeline_root), connection, components, enable_cache=True))


def artifacts(pipeline_root: Path) -> list[Any]:
    from ml_metadata import metadata_store
    from tfx.orchestration import metadata

    connection = metadata.sqlite_metadata_connection_config(f"{pipeline_root}/metadata.sqlite")
    return metadata_store.MetadataStore(connection).get_artifacts_by_type("Examples")


def test_in_a_pipeline_it_finds_the_latest_span_caches_and_feeds_statistics(tmp_path: Path) -> None:
    from tensorflow_data_validation import load_stats_binary
    from tfx.components import StatisticsGen
    from tfx.components.example_gen import utils

    for span, rows in (("1", 10), ("2", 300)):
        (tmp_path / "in" / span).mkdir(parents=True)
        (tmp_path / "in" / span / "a.csv").write_text("x,y\n" + "".join(f"{row},\n" for row in range(rows)))

    def pipeline() -> list[Any]:
        config = utils.make_default_input_config("{SPAN}/*")
        gen = components.CsvExampleGen(f"{tmp_path}/in", config, options=IngestOptions(shards=ShardOptions(count=2)))
        return [gen, StatisticsGen(examples=gen.outputs["examples"])]

    root = tmp_path / "run"
    run(root, pipeline())
    (first,) = artifacts(root)
    assert first.custom_properties["span"].int_value == 2
    assert Manifest.read(first.uri).rows_read == 300
    counted = [load_stats_binary(str(path)).datasets[0].num_examples for path in root.rglob("FeatureStats.pb")]
    assert sorted(counted) == sorted(split.records for split in Manifest.read(first.uri).splits.values())

    run(root, pipeline()[:1])
    assert len(artifacts(root)) == 1  # the second run took the first one's


def test_files_take_the_arguments_of_tfxs_file_based_example_gen_in_its_order() -> None:
    import inspect

    from tfx.components import CsvExampleGen as TfxCsvExampleGen
    from tfx.components import FileBasedExampleGen, ImportExampleGen

    pairs = [
        (TfxCsvExampleGen, components.CsvExampleGen),
        (ImportExampleGen, components.ImportExampleGen),
        *((FileBasedExampleGen, getattr(components, f"{name}ExampleGen")) for name in ("File", "Parquet", "Avro")),
    ]
    for theirs, ours in pairs:
        names = list(inspect.signature(theirs.__init__).parameters)
        assert list(inspect.signature(ours.__init__).parameters)[: len(names)] == names


def test_import_example_gen_is_the_one_of_tfrecords_and_has_tfxs_id() -> None:
    made = components.ImportExampleGen(input_base="/data")
    assert isinstance(made, components.TFRecordExampleGen)
    assert made.id == "ImportExampleGen"


def test_a_format_without_a_component_of_its_own_is_named() -> None:
    made = components.FileExampleGen(input_base="/data", format="csv", source={"delimiter": ";"})
    assert (request(made).format, request(made).source) == ("csv", {"delimiter": ";"})
    with pytest.raises(InfeedError, match=r"(?s)neither a format nor an executor is given.*FileExampleGen.*csv, jsonl"):
        components.FileExampleGen(input_base="/data")
    with pytest.raises(InfeedError, match=r"(?s)format is 'xml'.*one of csv, jsonl"):
        components.FileExampleGen(input_base="/data", format="xml")
    with pytest.raises(InfeedError, match=r"(?s)no setting 'delimeter'; did you mean 'delimiter'\?.*CsvOptions"):
        components.FileExampleGen(input_base="/data", format="csv", source={"delimeter": ";"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"custom_config": 1}, r"(?s)custom_config is given.*options=IngestOptions\(...\).*source="),
        ({"output_data_format": 7}, "(?s)FORMAT_TF_SEQUENCE_EXAMPLE.*use one of FORMAT_TF_EXAMPLE"),
        ({"output_data_format": 99}, "(?s)payload format is 99.*output_data_format or payload_format"),
        ({"output_file_format": 16}, "(?s)output_file_format is FILE_FORMAT_PARQUET.*leave it out"),
    ],
)
def test_an_argument_that_means_something_else_here_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        components.ParquetExampleGen(input_base="/data", **arguments)


@pytest.mark.parametrize(
    ("executor", "advice"),
    [
        ("custom_executors.parquet_executor.Executor", r"use ParquetExampleGen\(...\) of infeed.components without"),
        ("custom_executors.avro_executor.Executor", r"use AvroExampleGen\(...\) of infeed.components without"),
        ("base_example_gen_executor.BaseExampleGenExecutor", "a FileExecutor of infeed.components, or TFX"),
    ],
)
def test_an_executor_of_tfx_is_refused_with_the_component_to_write(executor: str, advice: str) -> None:
    from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

    spec = BeamExecutorSpec(user_code.load(f"tfx.components.example_gen.{executor}", "executor"))
    for component in (components.FileExampleGen, components.ParquetExampleGen):
        with pytest.raises(InfeedError, match=rf"(?s)custom_executor_spec is .* not an executor of infeed.*{advice}"):
            component(input_base="/data", custom_executor_spec=spec)


def test_parquet_is_not_imported_as_records() -> None:
    from tfx.proto import example_gen_pb2

    with pytest.raises(InfeedError, match=r"(?s)FORMAT_PARQUET.*payload_format.*ParquetExampleGen reads"):
        components.ImportExampleGen(input_base="/data", payload_format=example_gen_pb2.FORMAT_PARQUET)


def test_an_executor_of_ours_takes_the_place_of_the_components() -> None:
    from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

    made = components.FileExampleGen(input_base="/data", custom_executor_spec=BeamExecutorSpec(components.FileExecutor))
    assert made.executor_spec.executor_class is components.FileExecutor


PAGE = Path(__file__).parents[3] / "docs" / "sources.md"
LOG = """\
10.0.0.1 - - [20/Nov/2026:10:00:00 +0000] "GET /index.html HTTP/1.1" 200 512
10.0.0.2 - - [20/Nov/2026:10:00:01 +0000] "POST /login HTTP/1.1" 302 0
"""


def test_a_source_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Any, read_split: Any) -> None:
    """The example of docs/sources.md, run as it stands there."""
    import tensorflow as tf

    (code,) = re.findall(r"## A source of your own.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 30
    (tmp_path / "access_log_source.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = importlib.import_module("access_log_source")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(LOG)
    execute(source.AccessLogExampleGen(input_base=f"{tmp_path}/logs"), tmp_path / "out")

    manifest = Manifest.read(f"{tmp_path}/out")
    assert (manifest.source.kind, manifest.rows_read) == ("access log", 2)
    found = Counter[tuple[bytes, int]]()
    for record in (record for split in ("train", "eval") for record in read_split(f"{tmp_path}/out", split)):
        features = tf.train.Example.FromString(record).features.feature
        page, status = features["request.page"].bytes_list.value[0], features["status"].int64_list.value[0]
        found[page, status] += 1
    assert found == {(b"/index.html", 200): 1, (b"/login", 302): 1}
