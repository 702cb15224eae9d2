"""Notes about leakage, and the errors of a strict run.

Columns may give the label away, and rows of train may occur in a scoring split.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.splits import ByColumns, ByName, ByRecord, ByTime, SplitBy
from infeed.components.transform.feature import Feature
from infeed.pipelines.surveys import ColumnSurvey, Group, ImageSurvey, Leak, Repeats, Survey, TableSurvey

_SHOWN = 12  # columns by name
_SHOWN_GROUPS = 3  # others mostly mean the same rows
_AGREES = 0.5
_MATERIAL = 0.005  # of the rows: fewer repeats hardly change a score
_MANY_COPIES = 0.05  # of the rows, where all of them fall into one split


@dataclass(frozen=True)
class LeaksInUse:
    """Columns that (may) give the label away and would be learned from."""

    survey: Survey
    features: Sequence[Feature]
    function: str | None  # the user's preprocessing_fn, which gets all columns
    by_survey: bool  # whether a function chooses the features from the survey
    keep: Sequence[str]  # columns that are known at prediction time

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield a note, (subject, text), per column."""
        for column, leak in self._found():
            yield "label leak", f"{column.name} {self._words(column, leak)}"

    def check(self, data: str) -> None:
        """Raise InfeedError if columns that are not kept give the label away; the error names them."""
        found = [(column, leak) for column, leak in self._found() if leak.sure and column.name not in self.keep]
        if not found:
            return
        reasons = ", ".join(f"{column.name} ({leak.why})" for column, leak in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        flags = " ".join(f"--keep {quote(column.name)}" for column, _ in found[:_SHOWN])
        withheld = "; without --strict, the others are left out" if self.by_survey else ""
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
            return f"is left out: {leak.reason}; known at prediction time? keep it with --keep {quote(column.name)}"
        gives = leak.reason.removeprefix("it ") if leak.sure else f"may give the label away: {leak.why}"
        if leak.sure and column.features and self.by_survey:
            return f"{gives}; it stays because no other column is left to learn from"
        place = f"do not use it in {self.function}" if self.function else "take it out of the features"
        if self.by_survey:
            place = f"leave it out: --drop {quote(column.name)}"
        return f"{gives}; unless it is known at prediction time, {place}"


def spread_notes(survey: Survey, rule: SplitBy | None, keep: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield notes (topic, text) about groups of rows and repeated rows that the splits divide.

    Without a rule, the hash of the whole row decides. Columns to `keep` have the same values at prediction time.
    """
    if isinstance(survey, TableSurvey):
        yield from (("groups", f"{_finding(group)}; {_remedy(group)}") for group in _groups(survey, rule, keep))
        if words := _repeated(survey, rule):
            yield "repeated rows", words
    else:
        if survey.repeats.contrary:
            words = f"{survey.repeats.contrary:,} are in several classes with the same content{_example(survey)}"
            yield "repeated pictures", words
        if survey.repeats.divided:
            yield "repeated pictures", f"{_copies(survey)}; remove the copies"


def check_spread(survey: Survey, rule: SplitBy | None, keep: Collection[str], data: str) -> None:
    """Raise InfeedError if the splits divide groups of rows, or rows of train occur in files of another split."""
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
    return f"{survey.repeats.divided:,} pictures with the same content {may} in {place}{_example(survey)}"


def _example(survey: ImageSurvey) -> str:
    return f", such as {' and '.join(survey.repeats.example)}"


def _groups(survey: TableSurvey, rule: SplitBy | None, keep: Collection[str]) -> list[Group]:
    """Return the groups that the splits divide. Times and names divide rows on purpose."""
    if isinstance(rule, ByColumns | ByTime | ByName):
        return []
    return [group for group in survey.groups if group.column not in keep and group.shared != 0][:_SHOWN_GROUPS]


def _finding(group: Group) -> str:
    agree = ", and agree in the label more than other rows do" if group.agreement >= _AGREES else ""
    agree = ", and are near each other, so that a model recognizes them" if group.near and not agree else agree
    if group.shared is None:
        return f"rows of one {group.column} are in train and in the other splits{agree}"
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
    of_rows = f"of {_compared(repeats.rows, survey)} equal another row in all columns"
    spread = "and may stand in train and in the other splits; unless they are other cases, remove the repeats"
    if rule and not isinstance(rule, ByRecord) and repeats.equal > _MATERIAL * repeats.rows:
        return f"{repeats.equal:,} {of_rows} {_learned(repeats)}, {spread}"
    # The hash sends rows that are equal in all columns to one split.
    if repeats.alike > _MATERIAL * repeats.rows:
        return f"{repeats.alike:,} {of_rows} {_learned(repeats)}, but not in the others, {spread}"
    many = repeats.copies and repeats.copies >= _MANY_COPIES * repeats.rows
    return f"{repeats.copies:,} {of_rows}; equal rows are in one split" if many else ""


def _shared(survey: TableSurvey) -> str:
    repeats = survey.repeats
    rows = f"{repeats.scored:,} rows in the files of the other splits"
    sampled = f"{rows} in {_compared(repeats.rows, survey)}" if repeats.rows < survey.rows else rows
    return f"{repeats.shared:,} of {sampled} equal a row of train in all columns {_learned(repeats)}"


def _compared(rows: int, survey: TableSurvey) -> str:
    return f"a sample of {rows:,} rows" if rows < survey.rows else f"{rows:,} rows"


def _learned(repeats: Repeats) -> str:
    but = f" except {', '.join(repeats.ignored[:_SHOWN])}" if repeats.ignored else ""
    return f"that are learned from{but}"
