"""Lines of the summary of a run, and what each of them lets a reader conclude."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest

import infeed
from infeed.components.evaluation.model_report.scores import Guess
from infeed.components.transform.kinds.text import BagOfWords
from infeed.pipelines.commands.run_summary import summary
from infeed.pipelines.local.outcome import RunOutcome
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

OUTCOME = RunOutcome(
    split="test",
    rows=540,
    metrics={"accuracy": 0.98648},
    intervals={"accuracy": (0.9728, 0.9933)},
    guesses={"accuracy": Guess(0.1018, "always '3'")},
    blessed=True,
    reasons=(),
    model="runs/model",
    pushed="runs/serving/1",
    verdict="balanced",
    wait_fraction=0.07,
    wait_uncertainty=0.03,
    bottleneck="augment",
    report="report.html",
)
NOT_BLESSED = dataclasses.replace(OUTCOME, blessed=False, pushed=None, reasons=("its accuracy of 0.5 is below 0.6",))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return resolve(read_project("tabular"), Overrides(root=str(tmp_path_factory.mktemp("root"))))


def lines(config: Any, outcome: RunOutcome = OUTCOME, **given: Any) -> list[tuple[str, str]]:
    text = summary(dataclasses.replace(outcome, **given), config).plain
    return [(line[:20].strip(), line[20:]) for line in text.splitlines() if line]


def test_the_score_has_its_interval_its_rows_and_the_score_of_a_guess(config: Any) -> None:
    assert lines(config)[0] == ("accuracy", "0.986 (0.973 to 0.993), 540 test rows; always '3' scores 0.1018")


def test_metrics_after_the_first_do_not_repeat_the_rows(config: Any) -> None:
    found = dict(lines(config, metrics={"rmse": 2.0, "r2": 0.5}, guesses={"r2": Guess(0, "always the mean")}))
    assert found["RMSE"] == "2, 540 test rows"
    assert found["R²"] == "0.5; always the mean scores 0"


def test_a_word_of_caution_follows_the_scores(config: Any) -> None:
    assert lines(config, caution="5 test rows are few")[1] == ("caution", "5 test rows are few")


def test_a_model_that_is_not_blessed_says_why_and_ends_with_the_exit_code(config: Any) -> None:
    told = lines(config, NOT_BLESSED)
    assert ("blessed", "no") in told
    assert ("", "its accuracy of 0.5 is below 0.6") in told
    assert ("model, not pushed", "runs/model") in told
    assert told[-1] == ("exit code", "3: the model is not blessed, and nothing was pushed")
    assert lines(config)[-1][0] == "predict with"


def test_the_advice_fits_what_is_learned_from(config: Any) -> None:
    of_table = dict(lines(config, NOT_BLESSED))["what to do"]
    of_text = dict(lines(dataclasses.replace(config, features=(BagOfWords("said"),)), NOT_BLESSED))["what to do"]
    pictures = resolve(read_project("image"), Overrides(root=config.root))
    of_pictures = dict(lines(pictures, NOT_BLESSED))["what to do"]
    assert "add rows" in of_table
    assert "sentences" in of_text
    assert "images" in of_pictures
    assert "column" not in of_text + of_pictures


def test_the_share_of_waiting_has_its_range_and_what_sets_the_pace(config: Any) -> None:
    told = dict(lines(config, verdict="overhead-bound", bottleneck="callback Slow"))["waited for input"]
    assert told == "7.0 % ± 3 points of training time after the first epoch: overhead-bound (callback Slow)"


def test_a_model_worse_than_the_last_one_has_other_advice(config: Any) -> None:
    reasons = ("its accuracy is 0.1 below that of the last blessed model",)
    assert "The last pushed model stays" in dict(lines(config, NOT_BLESSED, reasons=reasons))["what to do"]


def test_a_model_that_is_not_clearly_better_than_a_guess_is_to_be_scored_on_more_rows(config: Any) -> None:
    reasons = ("its auc, 0.491 to 0.762 by 90 test rows, is not clearly better than guessing, which scores 0.5",)
    assert "score it on more rows" in dict(lines(config, NOT_BLESSED, reasons=reasons))["what to do"]


def test_the_example_of_a_prediction_is_quoted(tmp_path: Path) -> None:
    data = tmp_path / "my file.csv"
    data.write_text("a;b;c\n" + "".join(f"{i};{i % 7};{i % 2}\n" for i in range(40)))
    given = Overrides(root=str(tmp_path), data=str(data), label="c", source_options={"delimiter": ";"})
    found = dict(lines(resolve(read_project("tabular"), given)))["predict with"]
    _, *words, quoted, option, value = shlex.split(found)
    assert (words, option, value) == (["predict", "runs/serving/1"], "--delimiter", ";")
    assert Path(quoted).resolve() == data.resolve()  # which is shown from the current folder if that is shorter


def test_the_example_of_a_dataset_is_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,c\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(60)))
    infeed.ingest(tmp_path / "rows.csv", tmp_path / "data")
    given = Overrides(root=str(tmp_path), data=str(tmp_path / "data"), label="c")
    found = dict(lines(resolve(read_project("tabular"), given)))["predict with"]
    assert Path(shlex.split(found)[-1]).resolve() == tmp_path / "data"
