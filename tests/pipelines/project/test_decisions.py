from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.sources.folders import FileRef
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import Fill, LowerCase
from infeed.components.transform.kinds.encode import Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore
from infeed.pipelines.project.decisions import check_train_names, choose_blessing, choose_schedule
from infeed.pipelines.project.notes import why
from infeed.pipelines.project.survey import survey_table
from infeed.pipelines.surveys import ColumnSurvey, ImageSurvey, Layout, TableSurvey


def survey(tmp_path: Path, **rows: int) -> TableSurvey:
    lines = [f"{number % 7},{name}" for name, count in rows.items() for number in range(count)]
    (tmp_path / "data.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    return survey_table(str(tmp_path / "data.csv"), "y")


@pytest.mark.parametrize(
    ("rows", "metric", "positive", "bound"),
    [
        ({"a": 60, "b": 40}, "accuracy", None, 0.6),
        ({"ok": 90, "fraud": 10}, "auc", "fraud", 0.5),
        ({"a": 80, "b": 10, "c": 10}, "f1", None, 2 * 0.8 / 1.8 / 3),  # always `a`: F1 of a, and 0 of the others
        ({"a": 50, "b": 40, "c": 10}, "accuracy", None, 0.5),
    ],
)
def test_imbalanced_classes_are_judged_by_a_metric_that_sees_them(
    tmp_path: Path, rows: dict[str, int], metric: str, positive: str | None, bound: float
) -> None:
    blessing = choose_blessing(survey(tmp_path, **rows), {})
    assert (blessing.metric, blessing.positive, blessing.bound) == (metric, positive, pytest.approx(bound))


def test_the_choice_is_told_with_its_reason(tmp_path: Path) -> None:
    found = survey(tmp_path, ok=90, fraud=10)
    words = "auc of 'fraud', at least 0.5: always predicting 'ok' has an accuracy of 90.0%"
    assert why(found, choose_blessing(found, {})) == words
    assert why(found, choose_blessing(found, {"metric": "accuracy"})) == "accuracy, at least 0.9"


def test_what_is_given_wins(tmp_path: Path) -> None:
    found = survey(tmp_path, ok=90, fraud=10)
    blessing = choose_blessing(found, {"metric": "recall", "positive": "ok", "bound": 0.7, "slack": None})
    assert (blessing.metric, blessing.positive, blessing.bound, blessing.slack) == ("recall", "ok", 0.7, 0.01)
    assert choose_blessing(found, {"metric": "f1"}).bound == pytest.approx(0.2 / 1.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "recall"}, "recall has no default bound(.|\n)*bound: 0.8"),
        ({"metric": "mse"}, "metric is 'mse', but this is a classification of 3 classes"),
        ({"metric": "auc"}, "metric is 'auc'(.|\n)*use one of accuracy, recall, precision, f1$"),
        ({"metric": "f1", "positive": "d"}, "there is no class 'd'(.|\n)*'a', 'b', 'c'"),
        ({"metric": "acuracy"}, "metric is 'acuracy'(.|\n)*use one of accuracy, auc"),
    ],
)
def test_a_metric_that_does_not_fit_is_told(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        choose_blessing(survey(tmp_path, a=30, b=30, c=30), given)


def table(rows: int) -> TableSurvey:
    return TableSurvey((), ColumnSurvey("y", "int", 100, 0, 2, 0.5, 0.5, 60), "regression", rows)


def pictures(train: int, evaluation: int, splits: dict[str, str]) -> ImageSurvey:
    folders = ["training"] * train + ["val"] * evaluation
    refs = tuple(FileRef("/data", f"{folder}/cat/{number}.png", 1, "cat") for number, folder in enumerate(folders))
    return ImageSurvey(Layout(refs, splits), ("cat",), (len(refs),), len(refs), 8, 8, 3, len(refs))


SPLIT = {"train": "training/*/*", "eval": "val/*/*"}


@pytest.mark.parametrize(
    ("unit", "rows", "batch_size", "epochs", "patience"),
    [
        ("rows", 569, 64, 100, 33),
        ("rows", 6_667, 64, 28, 9),
        ("rows", 66_667, 512, 23, 8),
        ("rows", 1_000_000, 1024, 10, 3),
        ("rows", 100_000_000, 1024, 10, 3),
        ("pictures", 80, 64, 100, 33),  # an epoch is one step
        ("pictures", 400, 64, 33, 11),
        ("pictures", 1_198, 64, 20, 7),
        ("pictures", 60_000, 256, 12, 4),
        ("pictures", 1_000_000, 256, 10, 3),
    ],
)
def test_many_rows_have_larger_batches_and_fewer_epochs_and_a_few_pictures_have_two_hundred_steps(
    unit: str, rows: int, batch_size: int, epochs: int, patience: int
) -> None:
    chosen, _ = choose_schedule(table(rows) if unit == "rows" else pictures(1, 1, SPLIT), rows, {})
    assert chosen == {"batch_size": batch_size, "epochs": epochs, "patience": patience}


@given(rows=st.integers(20, 10**9), more=st.integers(0, 10**9))
def test_more_rows_never_mean_smaller_batches_or_more_epochs_than_the_bounds(rows: int, more: int) -> None:
    chosen = [choose_schedule(table(number), number, {})[0] for number in (rows, rows + more)]
    few, many = (one["batch_size"] for one in chosen)
    assert few <= many
    assert {few & (few - 1), many & (many - 1)} == {0}  # powers of two
    assert all(64 <= one["batch_size"] <= 1024 and 10 <= one["epochs"] <= 100 for one in chosen)


def test_a_schedule_is_told_with_its_reason(golden: Callable[..., None]) -> None:
    given = ({}, {"batch_size": 64, "epochs": 2})
    golden("schedules.txt", "".join(f"{choose_schedule(table(100_000), 66_667, one)[1]}\n" for one in given))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"batch_size": 64}, {"batch_size": 64, "epochs": 10, "patience": 3}),
        ({"epochs": 7}, {"batch_size": 512, "epochs": 7, "patience": None}),  # as many as were asked for
        ({"epochs": 7, "patience": 1}, {"batch_size": 512, "epochs": 7, "patience": 1}),
        ({"patience": None}, {"batch_size": 512, "epochs": 23, "patience": None}),
        ({"epochs": None, "strategy": "auto"}, {"batch_size": 512, "epochs": 23, "patience": 8, "strategy": "auto"}),
        ({"epochs": "ten"}, {"batch_size": 512, "epochs": "ten", "patience": None}),  # TrainOptions refuses it
    ],
)
def test_a_schedule_that_is_given_wins(said: dict[str, Any], expected: dict[str, Any]) -> None:
    assert choose_schedule(table(100_000), 66_667, said)[0] == expected


FEATURES = (ZScore("x"), Fill("w", 1), Label("y"))


@pytest.fixture
def weighted(tmp_path: Path) -> TableSurvey:
    (tmp_path / "t.csv").write_text("x,w,y\n" + "1,1,no\n2,2,yes\n3,1,no\n" * 10)
    return survey_table(str(tmp_path / "t.csv"), "y")


def check(weighted: TableSurvey, features: Sequence[Feature] = FEATURES, own: bool = False, **given: Any) -> None:
    names = {"class_weight", "masks", "boxes", "task", "input_fn"}
    feed = FeedOptions(**{name: value for name, value in given.items() if name not in names})
    options = {name: value for name, value in given.items() if name in names}
    check_train_names(TrainOptions("m:f", "y", feed=feed, **options), weighted, features, own=own)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"class_weight": {"yess": 3.0}}, "'yess'; did you mean 'yes'"),
        ({"class_shares": {"no": 0.5, "maybe": 0.5}}, "'maybe'"),
        ({"weight": "nosuch"}, "'nosuch'"),
        ({"weight": "x"}, "'x' is scaled"),
        ({"bucket_by": "nosuch"}, "'nosuch'"),
        ({"masks": ["nosuch"]}, "'nosuch'"),
        ({"boxes": ["nosuch"]}, "'nosuch'"),
        ({"mix": {"old": 1}}, "'old'"),
    ],
)
def test_a_name_that_does_not_exist_is_reported(weighted: TableSurvey, given: dict[str, Any], word: str) -> None:
    with pytest.raises(InfeedError, match=word) as raised:
        check(weighted, **given)
    assert raised.value.where == f"train.{next(iter(given))}"


@pytest.mark.parametrize("feature", [Vocabulary("k"), OneHot("k"), Hash("k", 8), Fill("k", "a")])
def test_words_are_no_weights(weighted: TableSurvey, feature: Feature) -> None:
    with pytest.raises(InfeedError, match="'k'") as raised:
        check(weighted, (feature, Label("y")), weight="k")
    assert raised.value.where == "train.weight"
    check(weighted, (Fill("w", 0.5), Label("y")), weight="w")


def test_names_that_exist_are_taken(weighted: TableSurvey) -> None:
    check(weighted, class_weight={"yes": 3.0}, weight="w", bucket_by="x", mix={"train": 1})
    check(weighted, class_weight="balanced")
    check(weighted, class_shares="equal")


def test_what_only_a_function_knows_is_left_to_the_trainer(weighted: TableSurvey) -> None:
    check(weighted, (), own=True, weight="nosuch", class_weight={"other": 1.0})
    check(weighted, (ZScore("x"), Label("y", clean=(LowerCase(),))), class_weight={"other": 1.0})
    check(weighted, map_batches="math:floor", bucket_by="made")
    check(weighted, input_fn="m:f", weight="made")
