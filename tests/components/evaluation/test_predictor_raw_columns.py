"""The columns that an exported model names, against a dataset that was ingested anew."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.predictor import RawColumns, check_dataset

DESCRIBED = {
    "columns": ["x", "zip"],
    "source_options": {"csv": {"types": {"zip": "bytes"}, "nulls": ["", "-"]}},
    "types": {"x": "float", "y": "int", "zip": "bytes"},
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model" / "assets.extra"
    folder.mkdir(parents=True)
    (folder / "raw_columns.json").write_text(json.dumps(DESCRIBED))
    return folder.parent


def ingested(root: Path, text: str, **options: Any) -> str:
    (root / "new.csv").write_text(text)
    infeed.ingest(root / "new.csv", root / "data", splits={"test": 1}, source_options=options, overwrite=True)
    return str(root / "data")


def test_the_columns_of_a_model_of_another_exporter_are_unknown(tmp_path: Path) -> None:
    assert RawColumns.of(str(tmp_path)) is None
    check_dataset(str(tmp_path), str(tmp_path))


@pytest.mark.parametrize(
    ("words", "truths"),
    [
        ("True\nFalse\n", ("False", "True")),
        ("FALSE\nNA\n", ("FALSE", "TRUE")),
        ("true\nfalse\n", None),
        ("true\nTrue\n", None),
        ("Truest\n", None),
        ("True\n" + "x" * 2000, None),  # not read, because it may be large
    ],
)
def test_booleans_are_spelled_as_in_the_vocabulary(model: Path, words: str, truths: tuple[str, str] | None) -> None:
    (model / "assets").mkdir()
    (model / "assets" / "zip").write_text(words)
    known = RawColumns.of(str(model))
    assert known
    assert known.truths == ({"zip": truths} if truths else {})


@pytest.mark.parametrize(
    ("text", "column", "found", "wanted"),
    [
        ("zip,x,y\n01234,1.5,0\n00042,2.0,1\n", "zip", "int", "bytes"),
        ("zip,x,y\na,1,0\nb,2,1\n", "x", "int", "float"),
        ("zip,x,y\na,1.5,0.5\nb,2.0,1.0\n", "y", "float", "int"),
    ],
)
def test_a_column_of_another_type_is_named_with_the_options_of_training(
    tmp_path: Path, model: Path, text: str, column: str, found: str, wanted: str
) -> None:
    with pytest.raises(InfeedError, match=f"column '{column}' is {found}, but the model reads {wanted}") as raised:
        check_dataset(str(model), ingested(tmp_path, text))
    assert raised.value.where == str(tmp_path / "data")
    flags = shlex.split(raised.value.do.partition("DATASET ")[2])[1::2]
    options = {name: json.loads(value) for name, _, value in (flag.partition("=") for flag in flags)}
    assert options == {"nulls": ["", "-"], "types": {"zip": "bytes", column: wanted}}


def test_the_options_of_the_remedy_read_the_columns_as_in_training(tmp_path: Path, model: Path) -> None:
    text = "zip,x,y\n01234,1,0\n00042,-,1\n"
    with pytest.raises(InfeedError, match=r"column 'x'.*; types also differ in 'zip'"):
        check_dataset(str(model), ingested(tmp_path, text))
    types = {"x": "float", "zip": "bytes"}
    check_dataset(str(model), ingested(tmp_path, text, nulls=["", "-"], types=types))


def test_the_baseline_is_named(tmp_path: Path, model: Path) -> None:
    with pytest.raises(InfeedError, match="the baseline model reads bytes") as raised:
        check_dataset(str(model), ingested(tmp_path, "zip,x,y\n1,1.5,0\n"), is_baseline=True)
    assert "--root" in raised.value.do
