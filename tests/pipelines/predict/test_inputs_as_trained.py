"""Tables are read for a model as those were that it learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.predict.inputs import open_as_trained, rows


class Kind(NamedTuple):
    is_floating: bool = False
    is_integer: bool = False


class Shape(NamedTuple):
    rank: int = 1


class Spec(NamedTuple):
    """As much of a TensorSpec as is looked at."""

    dtype: Kind
    shape: Shape = Shape()


SPECS = {"price": Spec(Kind(is_floating=True)), "city": Spec(Kind())}
DOLLARS = {"csv": {"numbers": {"price": "$1,234.5", "label": "1,234.5"}}}


def prices(path: Path, trained: dict[str, Any], **settings: Any) -> tuple[list[float], dict[int, str]]:
    """The prices that fit, and what is wrong with the other rows, by their place."""
    [batch] = rows([str(path)], SPECS, settings, trained)
    return batch.cells["price"], dict(batch.wrong)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_numbers_are_read_in_the_format_of_the_training_files(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", 'price,city\n"$1,234",Bern\n$7.5,Chur\n3,Chur\n')
    assert prices(path, DOLLARS) == ([1234.0, 7.5, 3.0], {})


def test_a_cell_that_is_no_number_is_an_error_of_its_row_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", 'price,city\n"$1,234",Bern\nfree,Chur\n$3,Chur\n')
    found, wrong = prices(path, DOLLARS)
    assert found == [1234.0, 3.0]
    assert "'free'" in wrong[1]


def test_so_it_is_with_signs_for_all_columns(tmp_path: Path) -> None:
    trained = {"csv": {"thousands": ".", "decimal": ",", "delimiter": ";"}}
    path = written(tmp_path / "t.csv", "price;city\n1.234,5;Bern\nfree;Chur\n1.500;Chur\n")
    found, wrong = prices(path, trained)
    assert (found, list(wrong)) == ([1234.5, 1500.0], [1])


def test_files_of_another_format_have_the_same_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", '{"price": "$1,234", "city": "Bern"}\n')
    assert prices(path, DOLLARS) == ([1234.0], {})
    path = written(tmp_path / "n.jsonl", '{"price": 1234, "city": "Bern"}\n')
    assert prices(path, DOLLARS) == ([1234.0], {})


def test_what_the_user_gives_wins(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "price;city\n$7;Bern\n")
    assert prices(path, {"csv": {**DOLLARS["csv"], "delimiter": "|"}}, delimiter=";") == ([7.0], {})


def test_a_file_that_is_written_in_another_way_is_read_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "price,city\n7,Bern\n")
    assert prices(path, {"csv": {"delimiter": ";"}}) == ([7.0], {})
    path = written(tmp_path / "t.tsv", "price\tcity\n8\tBern\n")
    assert prices(path, {"csv": {"delimiter": ";"}}) == ([8.0], {})


def test_a_column_that_the_file_lacks_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "city\nBern\n")
    with pytest.raises(InfeedError, match="needs a column 'price'"):
        prices(path, DOLLARS)


def test_a_column_that_only_the_training_files_have_is_not_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "price,city\n$7,Bern\n")
    _, read_with = open_as_trained(str(path), "csv", {}, DOLLARS, SPECS)
    assert read_with == {"numbers": {"price": "$1,234.5"}}
