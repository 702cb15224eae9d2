"""Notes about leakage, and errors of strict runs.

Columns may give the label away, and scoring splits may contain rows of train.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.splits import ByColumns, ByName, ByRecord, ByTime, SplitBy
from infeed.components.transform.feature import Feature
from infeed.pipelines.surveys import ColumnSurvey, Group, ImageSurvey, Leak, Repeats, Survey, TableSurvey

_SHOWN = 12  # maximum columns listed by name
_SHOWN_GROUPS = 3  # maximum groups shown, because others mostly describe the same rows
_AGREES = 0.5
_MATERIAL = 0.005  # share of the rows. Fewer repeats hardly change a score
_MANY_COPIES = 0.05  # share of the rows, if all copies are in one split


@dataclass(frozen=True)
class LeaksInUse:
    """Columns in use that give, or may give, the label away."""

    survey: Survey
    features: Sequence[Feature]
    function: str | None  # the user's preprocessing_fn, which receives all columns
    by_survey: bool  # whether a function chooses the features from the survey
    keep: Sequence[str]  # columns that are known at prediction time

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield a note (subject, text) per column."""
        for column, leak in self._found():
            yield "label leak", f"{column.name} {self._words(column, leak)}"

    def check(self, data: str) -> None:
        """Raise InfeedError if columns that are not kept give the label away. The error lists them."""
        found = [(column, leak) for column, leak in self._found() if leak.sure and column.name not in self.keep]
        if not found:
            return
        reasons = ", ".join(f"{column.name} ({leak.why})" for column, leak in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        flags = " ".join(f"--keep {quote(column.name)}" for column, _ in found[:_SHOWN])
        withheld = "; without --strict, the other columns are excluded" if self.by_survey else ""
        what = f"{len(found):,} column{'s give' if len(found) > 1 else ' gives'} the label away: {reasons}{more}"
        raise InfeedError(what, where=data, do=f"keep the columns that are known at prediction time: {flags}{withheld}")

    def _found(self) -> Iterator[tuple[ColumnSurvey, Leak]]:
        used = {column for feature in self.features for column in feature.inputs}
        for column in self.survey.columns if isinstance(self.survey, TableSurvey) else ():
            if column.leak and (column.name in used or self.function or column.is_withheld):
                yield column, column.leak

    def _words(self, column: ColumnSurvey, leak: Leak) -> str:
        if column.name in self.keep:
            return f"is kept: {leak.why}"
        if column.is_withheld and not self.function:
            return (
                f"is excluded: {leak.reason}. If it is known at prediction time, keep it with --keep "
                f"{quote(column.name)}"
            )
        gives = leak.reason.removeprefix("it ") if leak.sure else f"may give {leak.subject} away: {leak.why}"
        if leak.sure and column.features and self.by_survey:
            return f"{gives}; it stays because no other column is left to learn from"
        place = f"do not use it in {self.function}" if self.function else "remove it from the features"
        if self.by_survey:
            place = f"exclude it with --drop {quote(column.name)}"
        return f"{gives}; unless it is known at prediction time, {place}"


def spread_notes(survey: Survey, rule: SplitBy | None, keep: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield notes (topic, text) about groups of rows and repeated rows that splits divide.

    Without a split rule, rows are split by their hash. Columns to `keep` have the same values at prediction time.
    """
    if isinstance(survey, TableSurvey):
        yield from (("groups", f"{_finding(group)}; {_remedy(group)}") for group in _groups(survey, rule, keep))
        if words := _repeated(survey, rule):
            yield "repeated rows", words
    else:
        if survey.repeats.contrary:
            words = f"{survey.repeats.contrary:,} are in several classes with the same content{_example(survey)}"
            yield "repeated images", words
        if survey.repeats.divided:
            yield "repeated images", f"{_copies(survey)}; remove the copies"


def check_spread(survey: Survey, rule: SplitBy | None, keep: Collection[str], data: str) -> None:
    """Raise InfeedError if splits divide groups of rows, or files of another split contain rows of train."""
    if not isinstance(survey, TableSurvey):
        if survey.patterns and survey.repeats.divided:
            raise InfeedError(_copies(survey), where=data, do="remove the copies from all splits but one")
        return
    found = _groups(survey, rule, keep)
    if found:
        do = f"{_remedy(found[0])}; if the same ones come at prediction time: --keep {quote(found[0].column)}"
        raise InfeedError(_finding(found[0]), where=data, do=do)
    if survey.repeats.shared:
        raise InfeedError(_shared(survey), where=data, do="remove these rows from one of the files")


def _copies(survey: ImageSurvey) -> str:
    place = "the folders of several splits" if survey.patterns else "train and in the other splits"
    may = "are" if survey.patterns else "may be"
    return f"{survey.repeats.divided:,} images with the same content {may} in {place}{_example(survey)}"


def _example(survey: ImageSurvey) -> str:
    return f", such as {' and '.join(survey.repeats.example)}"


def _groups(survey: TableSurvey, rule: SplitBy | None, keep: Collection[str]) -> list[Group]:
    """Return the groups that splits divide. Splits by time or name divide groups on purpose."""
    if isinstance(rule, ByColumns | ByTime | ByName):
        return []
    return [group for group in survey.groups if group.column not in keep and group.shared != 0][:_SHOWN_GROUPS]


def _finding(group: Group) -> str:
    agree = ", and their labels agree more than those of other rows" if group.agreement >= _AGREES else ""
    agree = ", and their rows are so similar that a model recognizes them" if group.near and not agree else agree
    if group.shared is None:
        return f"rows with the same {group.column} are in train and in other splits{agree}"
    return f"{group.shared:.1%} of the values of {group.column} in the other splits are in train too{agree}"


def _remedy(group: Group) -> str:
    do = f"use --split-by {quote(group.column)}" if group.shared is None else f"divide the files by {group.column}"
    return f"to score values of {group.column} that training has not seen, {do}"


def _repeated(survey: TableSurvey, rule: SplitBy | None) -> str:
    repeats = survey.repeats
    if repeats.shared > _MATERIAL * repeats.scored:
        return f"{_shared(survey)}; remove these rows from one of the files"
    if isinstance(rule, ByColumns):
        return ""
    of_rows = f"of {_compared(repeats.rows, survey)} equal another row"
    spread = "and may be in train and in other splits. Unless they are different cases, remove the repeats"
    if rule and not isinstance(rule, ByRecord) and repeats.equal > _MATERIAL * repeats.rows:
        return f"{repeats.equal:,} {of_rows} {_learned(repeats)}, {spread}"
    # The hash assigns rows that are equal in all columns to one split.
    if repeats.alike > _MATERIAL * repeats.rows:
        return f"{repeats.alike:,} {of_rows} {_learned(repeats)}, but not in the others, {spread}"
    many = repeats.copies and repeats.copies >= _MANY_COPIES * repeats.rows
    return f"{repeats.copies:,} {of_rows} in all columns; equal rows are in one split" if many else ""


def spread_by_chance(survey: Survey) -> str:
    """Return how many rows equal others that may be in another split, if chance explains them."""
    if not isinstance(survey, TableSurvey) or survey.repeats.expected <= _MATERIAL * survey.repeats.rows:
        return ""
    repeats = survey.repeats
    return f", and {repeats.expected:,} of {_compared(repeats.rows, survey)} equal another row of any split"


def _shared(survey: TableSurvey) -> str:
    repeats = survey.repeats
    rows = f"{repeats.scored:,} rows in the files of the other splits"
    sampled = f"{rows} in {_compared(repeats.rows, survey)}" if repeats.rows < survey.rows else rows
    return f"{repeats.shared:,} of {sampled} equal a row of train {_learned(repeats)}"


def _compared(rows: int, survey: TableSurvey) -> str:
    return f"a sample of {rows:,} rows" if rows < survey.rows else f"{rows:,} rows"


def _learned(repeats: Repeats) -> str:
    but = f" except {', '.join(repeats.ignored[:_SHOWN])}" if repeats.ignored else ""
    return f"in the columns that are used{but}"
