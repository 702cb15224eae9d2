"""Names in options of training are checked with the survey."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import Fill, LowerCase
from infeed.components.transform.kinds.encode import Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore
from infeed.pipelines.project.decisions import check_train_names
from infeed.pipelines.project.survey import survey_table
from infeed.pipelines.surveys import TableSurvey

FEATURES = (ZScore("x"), Fill("w", 1), Label("y"))


@pytest.fixture
def survey(tmp_path: Path) -> TableSurvey:
    (tmp_path / "t.csv").write_text("x,w,y\n" + "1,1,no\n2,2,yes\n3,1,no\n" * 10)
    return survey_table(str(tmp_path / "t.csv"), "y")


def check(survey: TableSurvey, features: Sequence[Feature] = FEATURES, own: bool = False, **given: Any) -> None:
    names = {"class_weight", "masks", "boxes", "task", "input_fn"}
    feed = FeedOptions(**{name: value for name, value in given.items() if name not in names})
    options = {name: value for name, value in given.items() if name in names}
    check_train_names(TrainOptions("m:f", "y", feed=feed, **options), survey, features, own=own)


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
def test_a_name_that_does_not_exist_is_reported(survey: TableSurvey, given: dict[str, Any], word: str) -> None:
    with pytest.raises(InfeedError, match=word) as raised:
        check(survey, **given)
    assert raised.value.where == f"train.{next(iter(given))}"


@pytest.mark.parametrize("feature", [Vocabulary("k"), OneHot("k"), Hash("k", 8), Fill("k", "a")])
def test_words_are_no_weights(survey: TableSurvey, feature: Feature) -> None:
    with pytest.raises(InfeedError, match="'k'") as raised:
        check(survey, (feature, Label("y")), weight="k")
    assert raised.value.where == "train.weight"
    check(survey, (Fill("w", 0.5), Label("y")), weight="w")


def test_names_that_exist_are_taken(survey: TableSurvey) -> None:
    check(survey, class_weight={"yes": 3.0}, weight="w", bucket_by="x", mix={"train": 1})
    check(survey, class_weight="balanced")
    check(survey, class_shares="equal")


def test_what_only_a_function_knows_is_left_to_the_trainer(survey: TableSurvey) -> None:
    check(survey, (), own=True, weight="nosuch", class_weight={"other": 1.0})
    check(survey, (ZScore("x"), Label("y", clean=(LowerCase(),))), class_weight={"other": 1.0})
    check(survey, map_batches="math:floor", bucket_by="made")
    check(survey, input_fn="m:f", weight="made")
