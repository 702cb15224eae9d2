from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import formats


@pytest.mark.parametrize("kind", formats.FORMATS)
def test_every_format_has_its_function_and_its_options(kind: str) -> None:
    found = formats.FORMATS[kind]
    module = importlib.import_module(f"infeed.components.example_gen.sources.{found.module}")
    assert callable(getattr(module, found.open))
    assert not found.settings or dataclasses.is_dataclass(getattr(module, found.settings))


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["a.csv"], "csv"),
        (["A.CSV.GZ"], "csv"),
        (["README", "a.parquet"], "parquet"),
        (["cat/1.JPG", "dog/2.png"], "images"),
        (["pos/1.txt"], "text"),
        (["a.tfrecord.gz"], "tfrecord"),
    ],
)
def test_the_names_of_files_show_the_format(tmp_path: Path, names: list[str], kind: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert formats.guess_format(str(tmp_path)) == kind


def test_nothing_shows_the_format(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(InfeedError, match=r"(?s)cannot tell the format.*--format: one of csv, jsonl"):
        formats.guess_format(str(tmp_path))


def test_a_table_of_a_database_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table trips as select 1 as fare union all select 2")
    monkeypatch.setenv("TRIPS", f"sqlite:///{tmp_path}/a.db")
    opened = formats.open_source("trips", "sql", IngestOptions(), {"connection_env": "TRIPS"})
    assert opened.schema.names == ["fare"]


def test_a_setting_that_is_needed() -> None:
    with pytest.raises(InfeedError, match=r"(?s)no connection_env given.*SqlOptions"):
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
    with pytest.raises(InfeedError, match=rf"(?s){name}={value!r} is no .*header=false".replace("[", r"\[")):
        formats.open_source(str(tmp_path), kind, IngestOptions(), {name: value})


def test_settings_of_their_types_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2\n-;4\n")
    settings = {"header": False, "names": ["a", "b"], "delimiter": ";", "nulls": ["-"], "types": {"b": "float"}}
    opened = formats.open_source(str(tmp_path), "csv", IngestOptions(), {**settings, "quote": None})
    assert dict(zip(opened.schema.names, map(str, opened.schema.types), strict=True)) == {"a": "int64", "b": "double"}


def test_a_setting_of_a_format_without_any(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="no setting 'delimiter'"):
        formats.open_source(str(tmp_path), "avro", IngestOptions(), {"delimiter": ";"})
