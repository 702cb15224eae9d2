"""Groups, repeated rows and repeated images, from the data to the notes of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.splits import ByColumns, ByLabel, ByRecord, ByTime, SplitBy
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.notes import check_spread, spread_notes
from infeed.pipelines.project.repeats import find_repeated_pictures
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.survey import survey_images
from infeed.pipelines.surveys import ColumnSurvey, Group, Repeats, TableSurvey

LABEL = ColumnSurvey("y", "int", 1_000, 0, 2, 0.5, 0.5, 600)


def said(rule: SplitBy | None = None, keep: tuple[str, ...] = (), **found: Any) -> list[str]:
    survey = TableSurvey((), LABEL, "classification", 1_000, ("0", "1"), (600, 400), **found)
    return [words for _, words in spread_notes(survey, rule, keep)]


USERS = (Group("user id", 0.9),)


@pytest.mark.parametrize("rule", [None, ByLabel("y")])
def test_a_group_that_the_splits_divide_is_told_with_the_remedy(rule: SplitBy | None) -> None:
    [words] = said(rule, groups=USERS)
    assert "labels agree" in words
    assert words.endswith("--split-by 'user id'")


@pytest.mark.parametrize("rule", [ByColumns(("user id",)), ByTime("day", ("2024",))])
def test_a_rule_that_keeps_groups_together_or_divides_them_on_purpose_needs_no_note(rule: SplitBy) -> None:
    assert said(rule, groups=USERS) == []


def test_rows_of_a_group_that_are_near_each_other_are_reported_so() -> None:
    [words] = said(groups=(Group("storm", 0.07, near=True),))
    assert "so similar" in words
    assert words.endswith("--split-by storm")


def test_a_group_that_comes_back_at_prediction_time_is_kept() -> None:
    assert said(keep=("user id",), groups=USERS) == []


def test_groups_of_files_are_divided_by_hand() -> None:
    [words] = said(groups=(Group("user", 0.1, shared=0.25), Group("shop", 0.1, shared=0.0)))
    assert words.startswith("25.0% of the values of user")
    assert "--split-by" not in words


@pytest.mark.parametrize(
    ("repeats", "rule", "said_of"),
    [
        (Repeats(1_000, equal=45, copies=20, alike=30), None, "30 of 1,000 rows"),
        (Repeats(1_000, equal=45, copies=20, alike=30), ByRecord("7", exact=True), "30 of 1,000 rows"),
        (Repeats(1_000, equal=45, copies=20, alike=30), ByLabel("y"), "45 of 1,000 rows"),
        (Repeats(1_000, equal=60, copies=60), None, "60 of 1,000 rows"),
        (Repeats(1_000, scored=200, shared=7), None, "7 of 200 rows"),
        (Repeats(500, equal=45, alike=30), None, "30 of a sample of 500 rows"),
        (Repeats(500, scored=200, shared=7), None, "7 of 200 rows in the files of the other splits in a sample of 500"),
    ],
)
def test_repeated_rows_are_told_by_what_the_splits_do_to_them(
    repeats: Repeats, rule: SplitBy | None, said_of: str
) -> None:
    [words] = said(rule, repeats=repeats)
    assert words.startswith(said_of)


def test_columns_that_are_not_compared_are_named() -> None:
    [words] = said(repeats=Repeats(1_000, equal=45, alike=30, ignored=("serial",)))
    assert "except serial" in words


def test_a_few_copies_in_one_split_are_not_worth_a_note() -> None:
    assert said(repeats=Repeats(1_000, copies=20)) == []
    assert said(ByColumns(("user",)), repeats=Repeats(1_000, equal=45, copies=20, alike=30)) == []


@pytest.mark.parametrize(
    ("repeats", "rule"),
    [
        (Repeats(32_768, equal=135, alike=135), None),
        (Repeats(32_768, equal=135), ByLabel("y")),
        (Repeats(9_000, scored=3_000, shared=2), None),
    ],
)
def test_repeats_of_fewer_than_one_in_200_rows_are_not_worth_a_note(repeats: Repeats, rule: SplitBy | None) -> None:
    assert said(rule, repeats=repeats) == []


def test_a_strict_run_stops_at_groups_and_at_rows_of_train_in_other_files() -> None:
    def check(**found: Any) -> None:
        survey = TableSurvey((), LABEL, "classification", 1_000, ("0", "1"), (600, 400), **found)
        check_spread(survey, None, (), "data.csv")

    with pytest.raises(InfeedError, match="user id") as error:
        check(groups=USERS)
    assert "--split-by 'user id'" in error.value.do
    with pytest.raises(InfeedError, match="7 of 200 rows"):
        check(repeats=Repeats(1_000, scored=200, shared=7))
    check(repeats=Repeats(1_000, equal=45, copies=20, alike=30))


def test_a_table_of_visits_is_told_of_its_users_and_of_rows_that_were_written_twice(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    users = random.integers(0, 80, 1_000)
    bought = (random.random(80) < 0.5)[users]
    rows = [f"{i},u{users[i]},{random.normal():.6f},{int(bought[i])}" for i in range(1_000)]
    again = [f"{1_000 + i},{row.partition(',')[2]}" for i, row in enumerate(rows[:50])]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(["visit,user_id,amount,bought", *rows, *again]))
    given = Overrides(data=str(path), label="bought", root=str(tmp_path))
    notes = dict(resolve(read_project("tabular"), given).notes)
    assert "user_id" in notes["groups"]
    assert notes["repeated rows"].startswith("100 of 1,050 rows")


def test_rows_of_train_in_a_file_of_test_stop_a_strict_run(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [f"u{i % 80},{random.normal():.6f},{int(random.random() < 0.4)}" for i in range(1_000)]
    for name, of_split in (("train", rows[:800]), ("test", [*rows[800:], *rows[:7]])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["user_id,amount,bought", *of_split]))

    def notes(**given: Any) -> dict[str, str]:
        overrides = Overrides(data=str(tmp_path), label="bought", root=str(tmp_path / "runs"), **given)
        return dict(resolve(read_project("tabular"), overrides).notes)

    assert notes()["repeated rows"].startswith("7 of 207 rows")
    assert notes()["groups"].startswith("100.0% of the values of user_id")
    with pytest.raises(InfeedError, match="7 of 207 rows"):
        notes(strict=True, keep=("user_id",))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Twenty in each of two classes of train/ and test/, all different."""
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(20):
                picture = Image.fromarray(random.integers(0, 256, (4, 4), dtype=np.uint8))
                picture.save(tmp_path / split / name / f"{number}.png")
    return tmp_path


def of_pictures(path: Path) -> list[str]:
    config = resolve(read_project("image"), Overrides(data=str(path), root=str(path / "runs")))
    return [words for about, words in config.notes if about == "repeated images"]


def test_pictures_that_differ_need_no_note(pictures: Path) -> None:
    assert of_pictures(pictures) == []


def copy(pictures: Path, one: str, other: str) -> None:
    (pictures / other).write_bytes((pictures / one).read_bytes())


def test_a_copy_in_the_folder_of_another_split_is_named_and_stops_a_strict_run(pictures: Path) -> None:
    copy(pictures, "train/cat/3.png", "test/cat/7.png")
    [words] = of_pictures(pictures)
    assert words.startswith("2 images")
    assert "train/cat/3.png" in words
    assert "test/cat/7.png" in words
    with pytest.raises(InfeedError, match=r"train/cat/3\.png"):
        resolve(read_project("image"), Overrides(data=str(pictures), root=str(pictures / "runs"), strict=True))


def test_a_copy_in_another_class_contradicts(pictures: Path) -> None:
    copy(pictures, "train/cat/3.png", "train/dog/7.png")
    [words] = of_pictures(pictures)
    assert words.startswith("2 are in several classes")


def test_copies_in_folders_of_classes_may_be_divided(pictures: Path) -> None:
    copy(pictures, "train/cat/3.png", "train/cat/7.png")
    images = survey_images(str(pictures / "train")).layout.images
    assert find_repeated_pictures(images, {}).divided == 2
    assert find_repeated_pictures(images, {"train": "train/*/*", "test": "test/*/*"}).divided == 0
