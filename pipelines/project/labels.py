"""Labels of a table: the task and the classes of a chosen column, and likely columns for an error or a question.

Names, positions and values of columns determine the likelihood. Only the user chooses the labels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from shlex import quote
from typing import NamedTuple

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.statistics.value_counts import MAX_DISTINCT
from infeed.components.example_gen.sources.csv_files import without_header
from infeed.components.transform.analyses import as_word
from infeed.components.transform.infer import MAX_INTEGER_CLASSES, are_whole, infer_features, infer_task, is_number
from infeed.pipelines.project.sources import set_aside
from infeed.pipelines.project.tables import Table
from infeed.pipelines.surveys import ColumnSurvey, LabelSurvey, Task, sample_of

# Usual names of labels, alone or as the last word of a name such as `loan_status`.
_NAMES = re.compile(
    r"(.*[\W_])?(labels?|targets?|class(es)?|y|outcome|response|result|status|category|type|diagnosis|species|churn(ed)?|"
    r"survived|default(ed)?|quality|price|score|rating|grade|sentiment|bought|sold|fraud|spam)",
    re.IGNORECASE,
)
_BY_NAME, _BY_PLACE, _BY_VALUES = 4, 2, 1  # weights of the signs of a label
_LIKELY = 5  # maximum columns that an error lists as likely
_SHOWN = 20  # maximum columns that an error lists
# Average rows per class. With fewer, most classes are missing in training or evaluation.
_MIN_ROWS_OF_A_CLASS = 2


class Candidate(NamedTuple):
    """Column that could be the label."""

    name: str
    type: str  # type in a tf.Example: "int", "float" or "bytes"
    distinct: int  # number of distinct values. An estimate above 10,000
    examples: str  # some values, most frequent first
    reasons: tuple[str, ...]  # why the column is a likely label. Empty if it is not
    weight: int  # likelihood. Larger is likelier


class LabelNeededError(InfeedError):
    """The label is missing or is not a column.

    Args:
      candidates: columns that could be the label, likeliest first.
    """

    def __init__(self, what: str, *, where: str, do: str, candidates: Sequence[Candidate]) -> None:
        super().__init__(what, where=where, do=do)
        self.candidates = tuple(candidates)


def survey_of_label(column: ColumnSurvey, asked: Task | None, names: Sequence[str], path: str) -> LabelSurvey:
    """Return the survey of a label column. Without a task, lists are sets of classes.

    `names` are the columns of the table at `path`. Raises InfeedError if the rows do not fit the task.
    """
    assert column.statistics is not None, "the survey has counted the column"
    task = asked or ("multilabel" if column.is_list else infer_task(column.statistics))
    _check(column, task, names, f"{path}, column {column.name!r}")
    if task == "regression":
        return LabelSurvey(column, task)
    counts = sorted((value, rows) for value, rows in column.statistics.counts.items() if value != b"")
    classes = tuple(as_word(value).decode("utf-8", "replace") for value, _ in counts)
    return LabelSurvey(column, task, classes, tuple(rows for _, rows in counts))


def _check(column: ColumnSurvey, task: Task, names: Sequence[str], where: str) -> None:
    if column.is_list and task != "multilabel":
        others = ",".join(one for one in names if one != column.name) if len(names) <= _SHOWN else "..."
        do = (
            "leave out the task, which learns a set of classes. Of a list of numbers, write each position as a separate"
        )
        do += f" column: --label COLUMN --columns {quote(others)},COLUMN"
        raise InfeedError(f"the label is a list, but a {task} has one value per row", where=where, do=do)
    if column.missing and not column.is_list:
        what = f"{column.missing:,} of {column.rows:,} rows have no label"
        do = f"exclude them: without --required {quote(column.name)}; or {set_aside(column.missing)}"
        raise InfeedError(what, where=where, do=do)
    if column.distinct == 1 and column.rows > 1 and not (column.is_list and column.commonest < column.rows):
        raise InfeedError("every row has the same label", where=where, do="choose a column with different values")
    if task == "regression":
        if column.type == "bytes":
            do = column.advice or "use --task classification"
            raise InfeedError("a text cannot be a quantity", where=where, do=do)
        return
    if column.type != "bytes" and column.statistics is not None and not are_whole(column.statistics):
        do = "write the classes as integers or words, or use --task regression"
        raise InfeedError("a class cannot be a fraction", where=where, do=do)
    distinct = column.distinct or 0  # None is more than are counted
    are_names = distinct > MAX_INTEGER_CLASSES and column.rows < _MIN_ROWS_OF_A_CLASS * distinct
    if column.distinct is None or are_names:
        classes = f"{distinct:,}" if distinct else f"more than {MAX_DISTINCT:,}"
        what = f"there are {classes} classes in {column.rows:,} rows: too few rows per class"
        do = "choose another label, join rare classes"
        if column.advice:
            do = f"{column.advice}; or {do}"
        elif column.type != "bytes" and not column.is_list:
            do += ", or learn it as a quantity: --task regression"
        raise InfeedError(what, where=where, do=do)


def label_needed(table: Table, path: str, labels: Sequence[str], numbers: Collection[str] = ()) -> LabelNeededError:
    """Return the error for missing labels, or labels that are not columns.

    `numbers` are text columns read as numbers.
    """
    names = [column.name for column in table.columns]
    label = next((name for name in labels if name not in names), None)
    targets = [part.strip() for part in (label or "").split(",")]
    if len(targets) > 1 and set(targets) <= set(names):
        what = f"{label!r} is not a column, but names {len(targets)} columns"
        do = " ".join(f"--label {quote(name)}" for name in targets)
        do = f"name each column: {do}; in a config: label: [{', '.join(targets)}]"
        return LabelNeededError(what, where=path, do=do, candidates=())
    found = candidates(table, numbers)
    likely = [one for one in found if one.reasons][:_LIKELY]
    what = "no label is set" if label is None else f"there is no column {label!r} to learn"
    flag = f", such as --label {quote(likely[0].name)}" if likely else " by --label"
    told = ", ".join(f"{one.name!r} ({', '.join(one.reasons)})" for one in likely)
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    parts = [f"choose the label column{flag}, or set label in the config", f"the columns are {shown}"]
    parts.append(f"likely labels are {told}" if told else "")
    if any(map(is_number, names)):
        parts.append(f"if the first line is data: {without_header(len(names))} --label c{len(names)}")
    return LabelNeededError(
        what + (schema.nearest(label, names) if label else ""),
        where=path,
        do="; ".join(filter(None, parts)),
        candidates=found,
    )


def candidates(table: Table, numbers: Collection[str] = ()) -> list[Candidate]:
    """Return the columns that could be the label, likeliest first, without lists and useless columns."""
    found, lists = table.statistics()[0], {column.name for column in table.columns if column.is_list}
    types = {column.name: found[column.name].type for column in table.columns}
    proposed = infer_features(types, found, values=table.sampled_values())
    useful = [one.column for one in proposed if (one.features or one.column in numbers) and one.column not in lists]
    weighed = []
    for column in (found[name] for name in useful):
        counts = column.counts
        named = _NAMES.fullmatch(column.name) is not None
        are_words = column.type == "bytes" or are_whole(column)
        few = are_words and 2 <= counts.distinct <= MAX_INTEGER_CLASSES and not column.missing
        signs = (
            (named, _BY_NAME, "its name"),
            (column.name == table.columns[-1].name, _BY_PLACE, "the last column"),
            (few, _BY_VALUES, f"{counts.distinct} different values"),
        )
        reasons = tuple(why for holds, _, why in signs if holds)
        weight = sum(weight for holds, weight, _ in signs if holds)
        type_ = "float" if column.name in numbers else column.type
        weighed.append(Candidate(column.name, type_, counts.distinct, sample_of(column), reasons, weight))
    return sorted(weighed, key=lambda one: -one.weight)
