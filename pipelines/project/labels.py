"""Likely label columns of a table, for an error or a question.

Names, positions and values of columns determine the likelihood. Only the user chooses the label.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.example_gen.sources.csv.reader import without_header
from infeed.components.transform.infer import MAX_INTEGER_CLASSES, are_whole, infer_features, is_number
from infeed.pipelines.project.tables import Column, Table
from infeed.pipelines.surveys import sample_of

# Usual names of labels, alone or as the last word of a name such as `loan_status`.
_NAMES = re.compile(
    r"(.*[\W_])?(labels?|targets?|class(es)?|y|outcome|response|result|status|category|type|diagnosis|species|churn(ed)?|"
    r"survived|default(ed)?|quality|price|score|rating|grade|sentiment|bought|sold|fraud|spam)",
    re.IGNORECASE,
)
_BY_NAME, _BY_PLACE, _BY_VALUES = 4, 2, 1  # weights of the signs of a label
_LIKELY = 5  # maximum columns that an error lists as likely
_SHOWN = 20  # maximum columns that an error lists


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


def single_values_needed(name: str, names: Sequence[str], path: str) -> InfeedError:
    """Return the error for a label with several values per row."""
    others = ",".join(one for one in names if one != name) if len(names) <= _SHOWN else "..."
    return InfeedError(
        "the label is a list, but a project learns one value per row",
        where=f"{path}, column {name!r}",
        do="write each class as a column of 0 and 1, or each position as a separate column, instead of the list; "
        f"then run once for each such COLUMN: --label COLUMN --columns {quote(others)},COLUMN",
    )


def label_needed(table: Table, path: str, label: str | None, numbers: Collection[str] = ()) -> LabelNeededError:
    """Return the error for a missing label, or a label that is not a column.

    `numbers` are text columns read as numbers.
    """
    names = [column.name for column in table.columns]
    targets = [part.strip() for part in (label or "").split(",")]
    if len(targets) > 1 and set(targets) <= set(names):
        what = f"{label!r} names {len(targets)} columns, and a project learns one"
        drop = " ".join(f"--drop {quote(name)}" for name in targets[1:])
        do = (
            f"run once for each of {', '.join(map(repr, targets))}, and drop the others: "
            f"--label {quote(targets[0])} {drop}"
        )
        return LabelNeededError(what, where=path, do=do, candidates=())
    found = candidates(table.columns, table.statistics()[0], table.sampled_values(), numbers)
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


def candidates(
    columns: Sequence[Column],
    found: Mapping[str, ColumnStatistics],
    values: Mapping[str, Sequence[bytes]],
    numbers: Collection[str] = (),
) -> list[Candidate]:
    """Return the columns that could be the label, likeliest first, without lists and useless columns."""
    lists = {column.name for column in columns if column.is_list}
    proposed = infer_features({column.name: found[column.name].type for column in columns}, found, values=values)
    useful = [one.column for one in proposed if (one.features or one.column in numbers) and one.column not in lists]
    weighed = []
    for column in (found[name] for name in useful):
        counts = column.counts
        named = _NAMES.fullmatch(column.name) is not None
        few = (
            (column.type == "bytes" or are_whole(column))
            and 2 <= counts.distinct <= MAX_INTEGER_CLASSES
            and not column.missing
        )
        signs = (
            (named, _BY_NAME, "its name"),
            (column.name == columns[-1].name, _BY_PLACE, "the last column"),
            (few, _BY_VALUES, f"{counts.distinct} different values"),
        )
        reasons = tuple(why for holds, _, why in signs if holds)
        weight = sum(weight for holds, weight, _ in signs if holds)
        type_ = "float" if column.name in numbers else column.type
        weighed.append(Candidate(column.name, type_, counts.distinct, sample_of(column), reasons, weight))
    return sorted(weighed, key=lambda one: -one.weight)
