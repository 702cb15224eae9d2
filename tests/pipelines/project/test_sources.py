from __future__ import annotations

import csv
import sys
import types
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyarrow import feather
from sklearn.datasets import load_breast_cancer, load_digits

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.example_gen.formats import FORMATS, Format, has_option
from infeed.components.example_gen.inputs import BadRows
from infeed.pipelines.config import EXAMPLE_GENS, Source, split_data
from infeed.pipelines.project import sources
from infeed.pipelines.project.number_columns import number_columns
from infeed.pipelines.project.sources import open_table, source_of
from infeed.pipelines.project.survey import survey_table

ROWS = [{"a": number, "y": "yes" if number % 2 else "no"} for number in range(4)]


@pytest.fixture
def tables(tmp_path: Path) -> dict[Source, Path]:
    """The same four rows in every format."""
    sources: tuple[Source, ...] = ("csv", "jsonl", "parquet", "arrow", "avro", "tfrecord")
    found = {source: tmp_path / f"t.{source}" for source in sources}
    found["csv"].write_text("a,y\n" + "".join(f"{row['a']},{row['y']}\n" for row in ROWS))
    found["jsonl"].write_text("".join(f'{{"a": {row["a"]}, "y": "{row["y"]}"}}\n' for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), found["parquet"])
    feather.write_feather(pa.Table.from_pylist(ROWS), found["arrow"])
    records = frame_records(encode_examples(pa.RecordBatch.from_pylist(ROWS)))
    write_records(str(found["tfrecord"]), [records], gzip_level=None)
    fields = [{"name": "a", "type": "long"}, {"name": "y", "type": "string"}]
    with found["avro"].open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, ROWS)
    return found


def test_the_names_of_files_show_what_they_are(tables: dict[Source, Path], tmp_path: Path) -> None:
    assert {source: source_of(str(path), "csv") for source, path in tables.items()} == {name: name for name in tables}
    (tmp_path / "parts").mkdir()
    tables["parquet"].rename(tmp_path / "parts" / "0.parquet")
    assert source_of(str(tmp_path / "parts"), "csv") == "parquet"


def test_where_they_show_nothing_it_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text("a,y\n1,no\n")
    assert source_of(str(tmp_path / "table.txt"), "csv") == "csv"
    assert source_of(str(tmp_path / "none.parquet"), "csv") == "csv"
    assert source_of(str(tmp_path), "images") == "images"


@pytest.mark.parametrize(
    ("names", "source", "message"),
    [
        (["cat/1.png"], "csv", "these are images(.|\n)*infeed run image --data"),
        (["a.csv"], "images", r"this is a table \(csv\)(.|\n)*infeed run tabular --data"),
        (["good/1.txt"], "csv", "infeed ingest (.|\n)* --format text --set unit=file"),
        (["a.csv", "b.jsonl"], "csv", "files of several formats"),
        (["a.xlsx"], "csv", ".xlsx files are not supported"),
    ],
)
def test_data_of_another_kind_is_told(tmp_path: Path, names: list[str], source: Source, message: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InfeedError, match=message):
        source_of(str(tmp_path), source)


def test_pictures_named_by_a_csv_are_pictures(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\na.png,cat\n")
    assert source_of(str(tmp_path), "images") == source_of(str(tmp_path / "labels.csv"), "images") == "images"


def test_every_format_is_surveyed_alike(tables: dict[Source, Path]) -> None:
    surveys = [survey_table(str(path), "y", source=source) for source, path in tables.items()]
    assert surveys == [surveys[0]] * len(tables)
    (a,) = surveys[0].columns
    assert (surveys[0].rows, surveys[0].guess, a.type, a.mean) == (4, 0.5, "int", 1.5)


def test_rows_of_a_function_are_surveyed_as_those_of_a_file(tables: dict[Source, Path], tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(f"def rows(part, parts):\n    return {ROWS!r}[part::parts]")
    expected = survey_table(str(tables["parquet"]), "y", source="parquet")
    assert survey_table(f"{tmp_path}/rows.py:rows", "y", source="reader", settings={"parts": 2}) == expected


def test_a_file_is_its_folder_and_its_name_wherever_it_is(tables: dict[Source, Path]) -> None:
    folder = str(tables["csv"].parent)
    assert split_data(f"{folder}/t.csv") == (folder, "t.csv")
    assert split_data(f"file://{folder}/t.csv") == (f"file://{folder}", "t.csv")
    assert split_data(folder) == (folder, None)


def test_every_format_of_a_project_has_its_example_gen() -> None:
    from infeed import components

    assert set(EXAMPLE_GENS) == {kind for kind, one in FORMATS.items() if one.in_projects}
    assert set(EXAMPLE_GENS.values()) <= set(components.__all__)


def test_a_dataset_is_data_with_its_splits_and_other_records_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n" + "".join(f"{number},{number % 2}\n" for number in range(60)))
    infeed.ingest(tmp_path / "rows.csv", tmp_path / "data")
    assert source_of(str(tmp_path / "data"), "csv") == "tfrecord"
    survey = survey_table(str(tmp_path / "data"), "y", source="tfrecord")
    assert (survey.rows, set(survey.patterns)) == (60, {"train", "eval"})
    other = frame_records(pa.array([b"a line of a log"], pa.large_binary()))
    write_records(str(tmp_path / "log.tfrecord"), [other], gzip_level=None)
    with pytest.raises(InfeedError, match=r"not tf\.Examples") as error:
        open_table(str(tmp_path / "log.tfrecord"), "tfrecord", {})
    assert error.value.where == str(tmp_path / "log.tfrecord")


def test_a_folder_is_read_in_order(tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"a": [number, number + 2]}), tmp_path / f"{number}.parquet")
    table = open_table(str(tmp_path), "parquet", {})
    blocks = (block for task in table.tasks for block in table.read(task.payload, bad_rows=BadRows()))
    assert [row["a"] for block in blocks for row in block.to_pylist()] == [0, 2, 1, 3]


def test_columns_that_csv_does_not_have(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "when": [date(1970, 1, 2), date(1970, 1, 4), None],
        "flag": [True, False, True],
        "town": pa.array(["a", "b", "a"]).dictionary_encode(),
        "list": [[1, 2], None, [3]],
        "in": [{"side": 1.5}, {"side": 2.5}, {"side": None}],
        "none": pa.nulls(3),
        "y": [1, 2, 1],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    survey = survey_table(str(tmp_path / "t.parquet"), "y", source="parquet")
    found = {column.name: (column.type, column.missing, column.mean) for column in survey.columns}
    assert found == {
        "when": ("int", 1, 2 * 86_400_000_000),  # microseconds, as the Examples have them
        "flag": ("int", 0, pytest.approx(2 / 3)),
        "town": ("bytes", 0, 0),
        "list": ("int", 1, 2),
        "in.side": ("float", 1, 2),
        "none": ("bytes", 3, 0),
    }
    assert survey.left_out == {"none": "it is empty"}
    with pytest.raises(InfeedError, match=r"the label is a list(.|\n)*column 'list'(.|\n)*--columns"):
        survey_table(str(tmp_path / "t.parquet"), "list", "regression", source="parquet")


def test_no_file_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"no such file or folder(.|\n)*a file of the format avro"):
        open_table(str(tmp_path / "none"), "avro", {})
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(InfeedError, match="no files to read"):
        open_table(str(tmp_path), "avro", {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def test_every_digit_is_a_png_of_its_own_in_its_class_folder(folder):
    root = sources.materialise("bundled:digits", folder)
    digits = load_digits()
    for number in (0, 5, 1796):
        path = root / str(digits.target[number]) / f"{number:04}.png"
        pixels = np.asarray(Image.open(path))
        np.testing.assert_array_equal((pixels.astype(float) * 16 / 255).round(), digits.images[number])
    assert len(list(root.glob("*/*.png"))) == 1797


def test_the_table_is_whole_but_for_about_one_value_in_fifty(folder):
    path = sources.materialise("bundled:breast_cancer", folder)
    data = load_breast_cancer()
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[0] == "mean_radius"
    assert header[-1] == "diagnosis"
    cells = np.array(rows)
    empty = cells[:, :-1] == ""
    assert 0.015 < empty.mean() < 0.025
    np.testing.assert_array_equal(np.where(empty, "0", cells[:, :-1]).astype(float), np.where(empty, 0, data.data))
    assert list(cells[:, -1]) == [data.target_names[label] for label in data.target]


def test_each_sentence_of_scipy_is_there_once_with_the_part_that_it_is_about(folder):
    with sources.materialise("bundled:scipy_sentences", folder).open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["sentence", "part"]
    assert ["Compute the determinant of a matrix", "linalg"] not in rows
    parts = dict(rows)
    assert len(parts) == len(rows) > 2_000
    assert set(parts.values()) == {"linalg", "optimize", "signal", "sparse", "stats"}
    assert all(sentence.endswith(".") and 5 <= len(sentence.split()) <= 60 for sentence in parts)


def test_data_that_is_there_is_left_alone(folder):
    path = sources.materialise("bundled:breast_cancer", folder)
    before = path.stat().st_mtime_ns
    assert sources.materialise("bundled:breast_cancer", folder) == path
    assert path.stat().st_mtime_ns == before  # TFX's cache looks at the time


@dataclass(frozen=True)
class OwnOptions:
    table: str  # required


def test_a_format_that_pipelines_lack_is_refused_with_the_command_that_ingests_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.own").touch()
    monkeypatch.setitem(FORMATS, "own", Format("own", "open_own", "OwnOptions", suffixes=(".own",)))
    with pytest.raises(InfeedError, match="format own") as raised:
        source_of(str(tmp_path / "a.own"), "csv")
    assert raised.value.where == str(tmp_path / "a.own")
    assert "--format own" in raised.value.do


def test_a_format_may_have_a_required_option(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("infeed.components.example_gen.sources.own")
    module.OwnOptions = OwnOptions  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMATS, "own", Format("own", "open_own", "OwnOptions"))
    assert has_option("own", "table")
    assert number_columns({}, "own", {"table": "t"}) == {}  # type: ignore[arg-type]
