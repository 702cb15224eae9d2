"""Notes and errors about rows that occur in train and in a scoring split."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from shlex import quote

from infeed.components.dataset.splits import ByColumns, ByName, ByTime, SplitBy
from infeed.components.errors import InfeedError
from infeed.pipelines.surveys import Group, ImageSurvey, Repeats, Survey, TableSurvey

_SHOWN = 3  # groups; others mostly mean the same rows
_AGREES = 0.5
_MANY_COPIES = 0.05  # of the rows, where all of them fall into one split


def spread_notes(survey: Survey, rule: SplitBy | None, keep: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield notes (topic, text) about groups of rows and repeated rows that the splits divide.

    Args:
      survey: survey of the data.
      rule: rule that assigns rows to splits. None for the hash of the whole row.
      keep: columns whose values are the same at prediction time.
    """
    if isinstance(survey, TableSurvey):
        yield from (("groups", f"{_finding(group)}; {_remedy(group)}") for group in _groups(survey, rule, keep))
        if words := _repeated(survey.repeats, rule):
            yield "repeated rows", words
    else:
        yield from (("repeated pictures", words) for words in _of_pictures(survey))


def check_spread(survey: Survey, rule: SplitBy | None, keep: Collection[str], data: str) -> None:
    """Check that the splits do not divide groups of rows.

    Raises:
      InfeedError: groups of rows are divided, or rows of train occur in files of another split.
    """
    if not isinstance(survey, TableSurvey):
        if survey.patterns and survey.repeats.divided:
            raise InfeedError(_copies(survey), where=data, do="remove the copies from all splits but one")
        return
    found = _groups(survey, rule, keep)
    if found:
        do = f"{_remedy(found[0])}; if the same ones come at prediction time: --keep {quote(found[0].column)}"
        raise InfeedError(_finding(found[0]), where=data, do=do)
    if survey.repeats.shared:
        raise InfeedError(_shared(survey.repeats), where=data, do="remove these rows from one of the files")


def _of_pictures(survey: ImageSurvey) -> Iterator[str]:
    if survey.repeats.contrary:
        yield f"{survey.repeats.contrary:,} are in several classes with the same content{_example(survey)}"
    if survey.repeats.divided:
        yield f"{_copies(survey)}; remove the copies"


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
    return [group for group in survey.groups if group.column not in keep and group.shared != 0][:_SHOWN]


def _finding(group: Group) -> str:
    agree = ", and agree in the label more than other rows do" if group.agreement >= _AGREES else ""
    if group.shared is None:
        return f"rows of one {group.column} are in train and in the other splits{agree}"
    return f"{group.shared:.1%} of the values of {group.column} in the other splits are in train too{agree}"


def _remedy(group: Group) -> str:
    if group.shared is None:
        return f"to score values of {group.column} that training has not seen, use --split-by {quote(group.column)}"
    return f"to score values of {group.column} that training has not seen, divide the files by {group.column}"


def _repeated(repeats: Repeats, rule: SplitBy | None) -> str:
    if repeats.shared:
        return f"{_shared(repeats)}; remove these rows from one of the files"
    if isinstance(rule, ByColumns):
        return ""
    # The hash sends rows that are equal in all columns to one split.
    torn = repeats.alike + (repeats.copies if rule else 0)
    of_rows = f"of {repeats.rows:,} rows equal another row in all columns"
    if torn:
        where = "and may stand in train and in the other splits"
        return f"{torn:,} {of_rows} that are learned from, {where}; unless they are other cases, remove the repeats"
    many = repeats.copies and repeats.copies >= _MANY_COPIES * repeats.rows
    return f"{repeats.copies:,} {of_rows}; equal rows are in one split" if many else ""


def _shared(repeats: Repeats) -> str:
    return (
        f"{repeats.shared:,} of {repeats.scored:,} rows in the files of the other splits equal a row of train in all "
        "columns that are learned from"
    )
