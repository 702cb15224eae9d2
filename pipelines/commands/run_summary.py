"""Text summary of a run: scores with intervals, location of the model, and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from infeed.components.base.units import percent, points, short_path, significant
from infeed.components.dataset import files
from infeed.components.evaluation.model_report.scores import LABELS, with_interval
from infeed.components.transform.kinds.text import BagOfWords
from infeed.pipelines.commands.options import as_flags
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console.exit_codes import EXIT_NOT_BLESSED
from infeed.pipelines.console.terminal import command_line, in_lines
from infeed.pipelines.surveys import TableSurvey

if TYPE_CHECKING:
    from infeed.components.evaluation.model_report.scores import Scores
    from infeed.pipelines.local.outcome import LabelScores, RunOutcome


# Advice for a better model, by the kind of its data.
_PICTURES = "add images of each class, augment them (augment in a config), or build a larger model (model.py)"
_SENTENCES = "add sentences of each class, or change their features (features.py)"
_COLUMNS = "add rows, or columns beyond those listed above"


def summary(outcome: RunOutcome, config: PipelineConfig) -> Text:
    """Summarize the outcome, one fact per line. Unlike in a table, long paths stay whole for copying."""
    lines: list[tuple[str, ...]] = [*score_lines(outcome, config.blessing.output), *other_lines(outcome.others)]
    lines += blessing_lines(outcome.blessed, outcome.reasons)
    if outcome.pushed:
        lines.append(("pushed to", short_path(outcome.pushed)))
    else:
        lines += [("what to do", _advice(outcome, config)), ("model, not pushed", short_path(outcome.model))]
    about = f" ± {points(outcome.wait_uncertainty)} points" if outcome.wait_uncertainty else ""
    waited = f"{percent(outcome.wait_fraction)}{about} of training time after the first epoch: {outcome.verdict}"
    if outcome.bottleneck:
        waited += f" ({outcome.bottleneck})"
    lines += [("waited for input", waited), ("report", short_path(outcome.report))]
    if outcome.model_report:
        lines.append(("how good it is", short_path(outcome.model_report)))
    asked = short_path(outcome.pushed or outcome.model)
    lines.append(("predict with", command_line("predict", asked, *_example(config)), "bold"))
    if not outcome.blessed:
        lines.append(("exit code", f"{EXIT_NOT_BLESSED}: the model is not blessed, and nothing was pushed", "bold red"))
    return Text("\n").join([Text(""), in_lines(lines)])


def blessing_lines(blessed: bool, reasons: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield whether the model is blessed, and if not, why."""
    yield ("blessed", "yes", "green") if blessed else ("blessed", "no", "bold red")
    yield from (("", reason) for reason in reasons)


def other_lines(others: Sequence[LabelScores]) -> Iterator[tuple[str, ...]]:
    """Yield the metrics of the labels that do not decide, and their pages."""
    for one in others:
        yield from score_lines(one.scores, one.label)
        if one.page:
            yield f"{one.label}: how good it is", short_path(one.page)


def score_lines(scores: Scores, label: str = "") -> Iterator[tuple[str, ...]]:
    """Yield each metric with its interval and the score of a guess. The first line also has the number of rows."""
    of = f"{label}: " if label else ""
    rows = f", {scores.rows:,} {scores.split} row{'s' * (scores.rows != 1)}"
    for name, value in scores.metrics.items():
        guess = scores.guesses.get(name)
        than = f"; {guess.by} scores {significant(guess.value)}" if guess else ""
        yield of + LABELS.get(name, name), f"{with_interval(name, value, scores.intervals.get(name))}{rows}{than}"
        rows = ""
    if scores.caution:
        yield f"{of}caution", scores.caution, "yellow"


def _advice(outcome: RunOutcome, config: PipelineConfig) -> str:
    """Suggest how to get a blessed model."""
    if any("last blessed model" in reason for reason in outcome.reasons):
        return (
            "find out what made it worse. The last pushed model stays. blessing.slack in a config sets the allowed loss"
        )
    if any("better than" in reason for reason in outcome.reasons):
        more = "groups" if outcome.groups else "rows"
        return f"score it on more {more}, or train a better model. blessing.bound in your config sets a required score"
    is_text = any(isinstance(feature, BagOfWords) for feature in config.features)
    better = _PICTURES if config.source == "images" else _SENTENCES if is_text else _COLUMNS
    return f"train longer (--epochs), {better}. blessing.bound in your config sets the required score"


def _example(config: PipelineConfig) -> list[str]:
    """Return working arguments for `infeed predict`: an image of the data, or a table and its options.

    A file of unlabeled rows is preferred. The data itself may be a dataset.
    """
    if config.source == "images":
        from infeed.pipelines.project.sources import find_layout

        return [short_path(find_layout(config.data, config.ingest).images[0].path)]
    if not config.place:
        return ["FILE"]
    from infeed.pipelines.predict.inputs import are_datasets

    table = config.data
    if not are_datasets([config.data]):
        unlabeled = config.survey.unlabeled_files if isinstance(config.survey, TableSurvey) else ()
        places = [*unlabeled, *reversed(list(config.patterns.values()))]
        found = files.glob(config.data, places[0]) if places else []
        table = found[0].path if found else config.data
    # The model itself stores the number format of its columns.
    options = {name: value for name, value in config.source_options.items() if name != "numbers"}
    return [short_path(table), *as_flags(options)]
