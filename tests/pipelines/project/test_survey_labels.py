"""Surveys of a table with several labels, and with sets of classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.project.survey import survey_table
from infeed.pipelines.surveys import TableSurvey

RANDOM = np.random.default_rng(0)
ROWS = 400
AREA = RANDOM.normal(100, 30, ROWS).round(1).tolist()
TOWN = RANDOM.choice(["Bern", "Basel", "Chur"], ROWS).tolist()


def homes() -> list[dict[str, Any]]:
    """Homes with a price, whether they are sold, and tags, of which `code` gives away `alpine`."""
    noise = RANDOM.normal(0, 20, ROWS).tolist()
    return [
        {
            "area": area,
            "code": town[0],
            "price": 3 * area + noise[i],
            "sold": bool(area + noise[i] > 90),
            "tags": ["alpine"] * (town == "Chur") + ["odd"] * (i % 2),
        }
        for i, (area, town) in enumerate(zip(AREA, TOWN, strict=True))
    ]


def survey(folder: Path, rows: list[dict[str, Any]], *labels: str, **options: Any) -> TableSurvey:
    (folder / "homes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return survey_table(str(folder / "homes.jsonl"), labels, source="jsonl", **options)


def test_each_label_has_its_task_and_classes_and_none_is_a_feature(tmp_path: Path) -> None:
    found = survey(tmp_path, homes(), "price", "sold", "tags")
    price, sold, tags = found.labels
    assert [one.task for one in found.labels] == ["regression", "classification", "multilabel"]
    assert (price.classes, sold.classes, tags.classes) == ((), ("false", "true"), ("alpine", "odd"))
    assert tags.class_rows == (TOWN.count("Chur"), ROWS // 2)
    assert [column.name for column in found.columns] == ["area", "code"]
    used = {name for column in found.columns for feature in column.features for name in feature.inputs}
    assert not used & {"price", "sold", "tags"}


def test_another_label_may_decide(tmp_path: Path) -> None:
    found = survey(tmp_path, homes(), "price", "sold", "tags").about("tags")
    assert (found.label.name, found.task, found.classes) == ("tags", "multilabel", ("alpine", "odd"))
    assert [one.column.name for one in found.labels] == ["tags", "price", "sold"]


def test_the_best_guess_of_sets_gives_the_commonest_classes_to_every_row(tmp_path: Path) -> None:
    rows = [{"x": i % 7, "tags": ["a"] * (i < 60) + ["b"] * (i < 50) + ["c"] * (i < 2)} for i in range(100)]
    # a and b for every row: 110 of 200 are right, of 112
    assert survey(tmp_path, rows, "tags").guess == pytest.approx(2 * 110 / (200 + 112))


def test_a_column_that_gives_one_of_the_labels_away_is_left_out_and_names_it(tmp_path: Path) -> None:
    found = survey(tmp_path, homes(), "price", "sold", "tags")
    [code] = [column for column in found.columns if column.name == "code"]
    assert code.leak is not None
    assert (code.leak.label, code.leak.sure, code.features) == ("tags", True, ())
    assert "'alpine'" in code.leak.reason
    alone = survey(tmp_path, homes(), "tags").columns[1]
    assert alone.leak is not None
    assert alone.leak.label == ""  # a table with one label needs no name of it


def test_groups_in_any_label_are_found(tmp_path: Path) -> None:
    rows = [{"user_id": i % 40, "x": i % 7, "a": "odd" if i % 3 else "even", "b": str(i % 40 % 2)} for i in range(ROWS)]
    for labels in (["a", "b"], ["b", "a"]):
        [group] = survey(tmp_path, rows, *labels).groups
        assert (group.column, group.agreement) == ("user_id", pytest.approx(1))


def test_a_row_without_one_of_the_labels_is_left_out_and_one_with_an_empty_set_is_not(tmp_path: Path) -> None:
    rows = homes()
    rows[0]["price"] = rows[1]["tags"] = None
    rows[2]["tags"] = rows[4]["tags"] = []
    found = survey(tmp_path, rows, "price", "sold", "tags")
    assert (found.rows, found.unlabeled) == (ROWS - 2, 2)


def test_a_list_is_no_single_class(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="is a list") as raised:
        survey(tmp_path, homes(), "price", "tags", task={"tags": "classification"})
    assert raised.value.where.endswith("homes.jsonl, column 'tags'")


def test_a_label_that_is_no_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"'sald'.*'sold'"):
        survey(tmp_path, homes(), "price", "sald")
