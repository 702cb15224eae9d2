from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.pipelines.predict import inputs
from infeed.pipelines.predict.inputs import IMAGE, Batch, check_exist, open_tables, pictures, rows


def spec(**kind: bool) -> Any:
    """As much of a TensorSpec as is looked at."""
    dtype = SimpleNamespace(**{"is_floating": False, "is_integer": False, **kind})
    return SimpleNamespace(dtype=dtype, shape=SimpleNamespace(rank=1))


SPECS = {"n": spec(is_integer=True), "x": spec(is_floating=True), "word": spec()}


def batches_of(path: Path, specs: Any, trained: Any = MappingProxyType({}), **settings: Any) -> Iterator[Batch]:
    return rows(open_tables([str(path)], specs, settings, trained), specs)


def only(batches: Any) -> Batch:
    [batch] = batches
    return batch  # type: ignore[no-any-return]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(tmp_path / "rides.csv", "n,x,word,more\n1,0.5,a,-\n,,,-\n3,2,7,-\n")


def test_cells_are_of_the_models_types_and_missing_ones_are_told_apart(table: Path) -> None:
    batch = only(batches_of(table, SPECS))
    assert batch.names == [f"{table}, row {number}" for number in (1, 2, 3)]
    assert batch.cells["n"] == [1, None, 3]
    assert batch.cells["x"][::2] == [0.5, 2.0]
    assert math.isnan(batch.cells["x"][1])
    assert [word if isinstance(word, str) else word.decode() for word in batch.cells["word"]] == ["a", "", "7"]
    assert batch.wrong == {}


def test_a_cell_that_does_not_fit_is_told_with_its_column_and_the_others_stay(tmp_path: Path) -> None:
    path = written(tmp_path / "rides.csv", "n\n1\n2.5\nmany\n")
    batch = only(batches_of(path, {"n": SPECS["n"]}))
    assert batch.cells == {"n": [1, 2]}
    assert batch.wrong == {2: "column 'n': 'many' is not a whole number"}
    assert "2.5 is rounded to 2" in batch.notes[1]


def test_long_tables_come_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_BATCH", 2)
    path = written(tmp_path / "rides.csv", "n\n1\n2\n3\n")
    assert [batch.cells["n"] for batch in batches_of(path, {"n": SPECS["n"]})] == [[1, 2], [3]]


def test_a_table_with_a_log_is_refused_and_files_that_describe_a_dataset_are_no_input(tmp_path: Path) -> None:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / "0.json").touch()
    with pytest.raises(InfeedError, match="a Delta Lake table") as error:
        only(batches_of(tmp_path / "t", {"word": SPECS["word"]}))
    assert error.value.where == f"{tmp_path}/t"
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    (tmp_path / "saved" / "part.csv").write_text("word\na\n")
    assert only(batches_of(tmp_path / "saved", {"word": SPECS["word"]})).names == [f"{tmp_path}/saved/part.csv, row 1"]


def test_what_the_model_cannot_be_asked_about_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="the model needs a column 'age'"):
        only(batches_of(table, {"age": SPECS["n"]}))
    with pytest.raises(InfeedError, match="takes the rows of a table"):
        only(batches_of(tmp_path / "cat.png", SPECS))
    with pytest.raises(InfeedError, match="named like csv"):
        only(pictures([str(table)]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InfeedError, match="the folder has no files"):
        only(batches_of(tmp_path / "empty", SPECS))
    with pytest.raises(InfeedError, match="the folder has no images"):
        only(pictures([str(tmp_path / "empty")]))


def test_pictures_are_looked_for_below_a_folder_and_what_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    Image.new("L", (2, 2)).save(tmp_path / "deep" / "cat.png")
    Image.new("L", (2, 2)).save(tmp_path / "dog.png", format="TIFF")
    (tmp_path / "no.jpg").write_text("no picture")
    (tmp_path / "notes.txt").write_text("left alone")
    batch = only(pictures([str(tmp_path)]))
    assert [Path(name).name for name in batch.names] == ["cat.png", "dog.png", "no.jpg"]
    assert batch.cells[IMAGE] == [(tmp_path / "deep" / "cat.png").read_bytes()]
    assert batch.wrong == {1: "it is a TIFF image; convert it to PNG or JPEG", 2: "it is not an image"}


def test_links_to_pictures_are_followed_and_a_dangling_one_is_told(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2)).save(tmp_path / "stored.png")
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/a.png").symlink_to("../../stored.png")
    (tmp_path / "in/deep/b.png").symlink_to("not-fetched.png")
    (tmp_path / "in/deep/loop").symlink_to("../../in")
    batch = only(pictures([str(tmp_path / "in")]))
    assert batch.names == [f"{tmp_path}/in/deep/{name}.png" for name in "ab"]
    assert (len(batch.cells[IMAGE]), list(batch.wrong)) == (1, [1])


def test_a_picture_of_very_many_pixels_is_refused_before_a_model_decodes_it(tmp_path: Path) -> None:
    Image.new("1", (2, 2)).save(tmp_path / "a.png")
    head = (tmp_path / "a.png").read_bytes()
    size = struct.pack(">II", 20_000, 20_000)
    ihdr = b"IHDR" + size + head[24:29]
    (tmp_path / "b.png").write_bytes(head[:12] + ihdr + struct.pack(">I", zlib.crc32(ihdr)) + head[33:])
    batch = only(pictures([str(tmp_path)]))
    assert len(batch.cells[IMAGE]) == 1
    assert "381 MB" in batch.wrong[1]


def test_large_pictures_are_asked_about_in_smaller_batches(tmp_path: Path) -> None:
    Image.new("L", (2, 2)).save(tmp_path / "a.png")
    for name in "bcd":
        (tmp_path / f"{name}.png").write_bytes((tmp_path / "a.png").read_bytes() + bytes(40 << 20))
    assert [len(batch.names) for batch in pictures([str(tmp_path)])] == [3, 1]


def test_lists_stay_lists_and_a_missing_one_is_missing(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.jsonl", '{"x": [1, 2.5], "word": ["a"], "n": [1]}\n{"x": [], "word": null, "n": [0, 1]}\n'
    )
    batch = only(batches_of(path, SPECS))
    assert batch.cells == {"n": [[1], [0, 1]], "x": [[1.0, 2.5], []], "word": [["a"], ""]}
    assert not batch.wrong


PRICES = {"price": SPECS["x"], "city": SPECS["word"]}
DOLLARS = {"numbers": {"price": "$1,234.5", "label": "1,234.5"}}
GERMAN = {"thousands": ".", "decimal": ",", "delimiter": ";"}


@pytest.mark.parametrize(
    ("name", "text", "trained", "settings", "prices"),
    [
        ("t.csv", 'price,city\n"$1,234",Bern\n$7.5,Chur\n3,Chur\n', DOLLARS, {}, [1234.0, 7.5, 3.0]),
        ("t.csv", 'price,city\n"$1,234",Bern\nfree,Chur\n$3,Chur\n', DOLLARS, {}, [1234.0, "'free'", 3.0]),
        ("t.csv", "price;city\n1.234,5;Bern\nfree;Chur\n1.500;Chur\n", GERMAN, {}, [1234.5, "'free'", 1500.0]),
        ("t.jsonl", '{"price": "$1,234", "city": "Bern"}\n', DOLLARS, {}, [1234.0]),
        ("t.jsonl", '{"price": 1234, "city": "Bern"}\n', DOLLARS, {}, [1234.0]),
        ("t.csv", "price;city\n$7;Bern\n", {**DOLLARS, "delimiter": "|"}, {"delimiter": ";"}, [7.0]),  # the user wins
        ("t.csv", "price,city\n7,Bern\n", {"delimiter": ";"}, {}, [7.0]),  # the file has another delimiter
        ("t.tsv", "price\tcity\n8\tBern\n", {"delimiter": ";"}, {}, [8.0]),
    ],
)
def test_numbers_are_read_in_the_format_of_the_training_files_and_a_wrong_one_is_an_error_of_its_row(
    tmp_path: Path, name: str, text: str, trained: Any, settings: dict[str, Any], prices: list[Any]
) -> None:
    batch = only(batches_of(written(tmp_path / name, text), PRICES, {"csv": trained}, **settings))
    assert batch.cells["price"] == [one for one in prices if isinstance(one, float)]
    assert list(batch.wrong) == [place for place, one in enumerate(prices) if isinstance(one, str)]
    assert all(prices[place] in why for place, why in batch.wrong.items())


def test_a_file_to_write_to_among_the_inputs_is_an_error_that_names_output(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n\n1\n")
    for given, remedy in ((["t.csv", "out.csv"], True), (["out.csv"], False)):
        with pytest.raises(InfeedError, match="no such file") as raised:
            check_exist(f"{tmp_path}/{name}" for name in given)
        assert raised.value.where == f"{tmp_path}/out.csv"
        assert ("--output" in raised.value.do) is remedy
