from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opened_sources import batches_of
from pyarrow import parquet as pq

from infeed import components
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import formats
from infeed.components.example_gen.formats import open_source


@pytest.mark.parametrize("kind", formats.FORMATS)
def test_every_format_has_its_function_and_its_options(kind: str) -> None:
    found = formats.FORMATS[kind]
    module = importlib.import_module(f"infeed.components.example_gen.sources.{found.module}")
    assert callable(getattr(module, found.open))
    assert not found.settings or dataclasses.is_dataclass(getattr(module, found.settings))
    assert found.component in components.__all__


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["a.csv"], "csv"),
        (["A.CSV.GZ"], "csv"),
        (["README", "a.parquet"], "parquet"),
        (["cat/1.JPG", "dog/2.png"], "images"),
        (["pos/1.txt"], "text"),
        (["a.tfrecord.gz"], "tfrecord"),
        (["mnist-train.tfrecord-00000-of-00001", "mnist-test.tfrecord-00000-of-00001"], "tfrecord"),  # of TFDS
        (["Split-train/data_tfrecord-00000-of-00002.gz"], "tfrecord"),  # of TFX
        (["a.tsv"], "csv"),
    ],
)
def test_the_names_of_files_show_the_format(tmp_path: Path, names: list[str], kind: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert formats.guess_format(str(tmp_path)) == kind


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.csv", "b.parquet"], r"several formats: csv \(a.csv\), parquet \(b.parquet\)(.|\n)*'.*/\*.csv'"),
        (["x/a.jpg", "x/b.csv"], r"several formats: images \(a.jpg\), csv \(b.csv\)(.|\n)*/\*/\*.jpg'"),
        (["notes.json", "a.tfrecord-00000-of-00002"], r"several formats(.|\n)*/\*.tfrecord\*'"),
        (["a.json"], r".json files are not supported(.|\n)*a.json(.|\n)*--format jsonl"),
        (["a.XLSX"], ".xlsx files are not supported(.|\n)*to_parquet"),
        (["cat/1.webp"], ".webp files are not supported(.|\n)*PNG or JPEG"),
        (["a.npz"], ".npz files are not supported(.|\n)*--reader"),
        (["_delta_log/0.json", "a.parquet"], "a Delta Lake table(.|\n)*--reader"),
        (["metadata/1.metadata.json", "data/a.parquet"], "an Iceberg table(.|\n)*--reader"),
        (["a.csv.zip"], ".zip files are not supported(.|\n)*extract it"),
    ],
)
def test_what_cannot_be_read_as_one_format_says_what_to_do(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InfeedError, match=message):
        formats.guess_format(str(tmp_path))


def test_a_function_without_its_option_is_told_the_option() -> None:
    for source, word in (("data.py:rows", "--reader data.py:rows"), ("C:/data", "check the path")):
        with pytest.raises(InfeedError, match="no such file") as error:
            formats.guess_format(source)
        assert word in error.value.do


def test_parquet_files_of_a_table_with_a_log_are_refused_unless_a_pattern_names_them(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "0.json").touch()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InfeedError, match="a Delta Lake table") as error:
        open_source(str(tmp_path), "parquet", IngestOptions(), {})
    assert error.value.where == str(tmp_path)
    assert open_source(f"{tmp_path}/*.parquet", "parquet", IngestOptions(), {}).schema.names == ["a"]


def test_a_csv_of_paths_and_labels_beside_its_pictures_is_no_second_format(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\na.png,cat\n")
    (tmp_path / "a.png").touch()
    assert formats.guess_format(str(tmp_path)) == "images"


def test_a_pattern_shows_what_it_finds(tmp_path: Path) -> None:
    for name in ("a.csv", "b.parquet"):
        (tmp_path / name).touch()
    assert formats.guess_format(f"{tmp_path}/b*") == "parquet"


def test_the_cells_of_a_tsv_lie_between_tabs_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb;c\n1\t2;3\n")
    assert formats.open_source(str(tmp_path), "csv", IngestOptions(), {}).schema.names == ["a", "b;c"]
    given = {"delimiter": ";", "names": ["a", "b"]}
    assert formats.open_source(str(tmp_path / "a.tsv"), "csv", IngestOptions(), given).schema.names == ["a", "b"]
    (tmp_path / "b.csv").write_text("a,b;c\n1,2\n")
    assert formats.default_settings(str(tmp_path), "csv") == {}


def test_nothing_shows_the_format(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(InfeedError, match=r"(?s)the format is unknown.*--format.*jsonl"):
        formats.guess_format(str(tmp_path))


def test_a_table_of_a_database_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table trips as select 1 as fare union all select 2")
    monkeypatch.setenv("TRIPS", f"sqlite:///{tmp_path}/a.db")
    opened = formats.open_source("trips", "sql", IngestOptions(), {"connection_env": "TRIPS"})
    assert opened.schema.names == ["fare"]


def test_a_setting_that_is_needed() -> None:
    with pytest.raises(InfeedError, match=r"the setting 'connection_env' is missing\n  where: SqlOptions"):
        formats.open_source("trips", "sql", IngestOptions(), {})


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("csv", "header", "False"),  # neither JSON nor empty: as a truth value it would be true
        ("csv", "nulls", "NA"),
        ("csv", "delimiter", 1),
        ("csv", "types", ["a"]),
        ("parquet", "columns", "fare"),
        ("images", "size", 28),
        ("images", "channels", True),
        ("text", "unit", 1),
    ],
)
def test_a_setting_of_another_type(tmp_path: Path, kind: str, name: str, value: Any) -> None:
    with pytest.raises(
        InfeedError, match=rf"{name} is {value!r}\n  where: .*Options\.{name}\n.*header=false".replace("[", r"\[")
    ):
        formats.open_source(str(tmp_path), kind, IngestOptions(), {name: value})


def test_settings_of_their_types_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2\n-;4\n")
    settings = {"header": False, "names": ["a", "b"], "delimiter": ";", "nulls": ["-"], "types": {"b": "float"}}
    opened = formats.open_source(str(tmp_path), "csv", IngestOptions(), {**settings, "quote": None})
    assert dict(zip(opened.schema.names, map(str, opened.schema.types), strict=True)) == {"a": "int64", "b": "double"}


def test_a_setting_of_a_format_without_any(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="no setting 'delimiter'"):
        formats.open_source(str(tmp_path), "avro", IngestOptions(), {"delimiter": ";"})


@pytest.mark.parametrize("name", ["a[1].csv", "fold[1]/a.csv", "fold[1]", "fold[1]/*.csv"])
def test_brackets_in_the_name_of_what_is_there_are_no_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / "fold[1]").mkdir()
    for file in ("a1.csv", "a[1].csv", "fold[1]/a.csv"):
        (tmp_path / file).write_text(f"{file},y\n1,2\n")
    opened = formats.open_source(str(tmp_path / name), "csv", IngestOptions(), {})
    assert opened.schema.names[0] == ("a[1].csv" if name == "a[1].csv" else "fold[1]/a.csv")


def test_booleans_become_words_and_whole_numbers_fractions_if_asked(tmp_path: Path) -> None:
    table = pa.table({"sold": [True, None, False], "rooms": [1, 2, None], "other": [True, False, True], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    options = IngestOptions(words=("sold", "rooms"), fractions=("rooms", "sold"))
    opened = open_source(str(tmp_path), "parquet", options, {})
    (batch,) = batches_of(opened)
    assert batch.schema == opened.schema
    assert batch.to_pydict() == {
        "sold": ["true", None, "false"],
        "rooms": [1.0, 2.0, None],
        "other": [True, False, True],
        "n": [1, 2, 3],
    }
    assert pa.types.is_float64(batch.schema.field("rooms").type)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("airport_fee", "Airport_fee", "'airport_fee' and 'Airport_fee' differ only in case."),
        ("city", "city ", "'city' and 'city '"),
        ("caf\u00e9", "cafe\u0301", r"'caf\xe9' and 'cafe\u0301'"),
        ("caf\u00e9", " Cafe\u0301", "' Cafe\u0301'"),
    ],
)
def test_columns_whose_names_are_taken_for_one_get_a_note(
    tmp_path: Path, kind: str, one: str, other: str, shown: str
) -> None:
    for number, name in enumerate((one, other, "fare")):
        table = pa.table({name: [1.5], "n": [number]})
        if kind == "parquet":
            pq.write_table(table, tmp_path / f"{number}.parquet")
        else:
            (tmp_path / f"{number}.jsonl").write_text(json.dumps(table.to_pylist()[0]))
    (note,) = open_source(str(tmp_path), kind, IngestOptions(), {}).warnings
    assert shown in note
    (tmp_path / f"1.{kind}").unlink()
    assert not open_source(str(tmp_path), kind, IngestOptions(), {}).warnings


def test_links_out_of_the_folder_are_followed_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder in ("data", "cache"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.csv").write_text("x\n1\n")
    for name in ("b.csv", "c.csv"):
        (tmp_path / "data" / name).symlink_to(f"../cache/{'cache.csv' if name == 'b.csv' else '../data/data.csv'}")
    with caplog.at_level("INFO"):
        assert len(open_source(str(tmp_path / "data"), "csv", IngestOptions(), {}).tasks) == 3
    assert [record.args for record in caplog.records] == [(1, 3, str(tmp_path / "data"))]
    caplog.clear()
    assert len(open_source(str(tmp_path / "data/b.csv"), "csv", IngestOptions(), {}).tasks) == 1
    (tmp_path / "data/b.csv").unlink()
    assert len(open_source(str(tmp_path / "data"), "csv", IngestOptions(), {}).tasks) == 2
    assert not caplog.records


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "self").symlink_to(tmp_path)
    for pattern in ("", "/*.csv", "/{*.csv,*/*.csv}"):
        assert len(open_source(f"{tmp_path}{pattern}", "csv", IngestOptions(), {}).tasks) == 1
    assert formats.guess_format(str(tmp_path)) == "csv"
    (tmp_path / "b.csv").symlink_to("b.csv")
    with pytest.raises(InfeedError, match="dangling") as raised:
        open_source(str(tmp_path), "csv", IngestOptions(), {})
    assert raised.value.where == str(tmp_path / "b.csv")


def test_the_folder_of_a_tfds_dataset_is_read_without_the_files_that_describe_it(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"mnist-{split}.tfrecord-00000-of-00001").touch()
    for name in ("dataset_info.json", "features.json", "label.labels.txt"):
        (tmp_path / name).write_text("{}")
    assert formats.guess_format(str(tmp_path)) == "tfrecord"
    opened = open_source(str(tmp_path), "tfrecord", IngestOptions(), {})
    assert [task.payload.file.path for task in opened.tasks] == [
        f"{tmp_path}/mnist-{split}.tfrecord-00000-of-00001" for split in ("test", "train")
    ]
