from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infeed import components
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.example_gen.sources.csv.rows import CsvOptions
from infeed.components.example_gen.sources.folders import TextOptions
from infeed.components.example_gen.sources.images.codec import ImageOptions
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
