"""Which columns are likely labels, and the error that names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.pipelines.project.labels import Candidate, LabelNeededError, candidates, label_needed
from infeed.pipelines.project.tables import Table


def table(folder: Path, header: str, *columns: list[object]) -> Table:
    lines = [header, *(",".join(map(str, row)) for row in zip(*columns, strict=True))]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return Table(str(folder / "t.csv"), "csv", {}, IngestOptions())


def found(of: Table) -> dict[str, Candidate]:
    return {one.name: one for one in candidates(of)}


IDS, FEW, MANY = list(range(40)), ["a", "b"] * 20, [n / 7 for n in range(40)]


def test_a_column_with_the_name_of_a_label_is_the_likeliest(tmp_path: Path) -> None:
    there = found(table(tmp_path, "loan_status,x,word", FEW, MANY, FEW))
    assert list(there) == ["loan_status", "word", "x"]
    assert there["loan_status"].reasons == ("its name", "2 different values")


@pytest.mark.parametrize("name", ["label", "Target", "y", "is_fraud", "class", "Outcome", "house price"])
def test_names_of_labels(name: str, tmp_path: Path) -> None:
    assert "its name" in found(table(tmp_path, f"{name},x", FEW, MANY))[name].reasons


def test_the_last_column_is_likely(tmp_path: Path) -> None:
    assert found(table(tmp_path, "a,b,c", MANY, MANY, MANY))["c"].reasons == ("the last column",)


def test_columns_that_teach_nothing_are_no_candidates(tmp_path: Path) -> None:
    assert list(found(table(tmp_path, "id,same,word", IDS, ["x"] * 40, FEW))) == ["word"]


def test_a_text_column_that_is_read_as_numbers_may_be_the_label(tmp_path: Path) -> None:
    prices = table(tmp_path, "price,x", [f"${n}.50" for n in IDS], MANY)
    [price, _] = candidates(prices, ["price"])
    assert (price.name, price.type, price.reasons) == ("price", "float", ("its name",))


def test_an_error_names_the_likely_columns_and_a_flag_that_works(tmp_path: Path) -> None:
    error = label_needed(table(tmp_path, "id,my word", IDS, FEW), "t.csv", [])
    assert isinstance(error, LabelNeededError)
    assert error.where == "t.csv"
    assert "--label 'my word'" in error.do


def test_a_label_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"there is no column 'wrd'(.|\n)*did you mean 'word'"):
        raise label_needed(table(tmp_path, "id,word", IDS, FEW), "t.csv", ["wrd"])


def test_columns_in_one_label_are_told_to_be_named_each(tmp_path: Path) -> None:
    error = label_needed(table(tmp_path, "x,a,b c,z", MANY, MANY, MANY, FEW), "t.csv", ["a, b c"])
    assert "2 columns" in error.what
    assert "--label a --label 'b c'" in error.do
    assert "there is no column" in label_needed(table(tmp_path, "x,a", MANY, MANY), "t.csv", ["a,b"]).what
