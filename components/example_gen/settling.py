"""What a source that was opened by a sample leaves to its tasks: the kinds of the columns, and the numbers of lines.

Once all tasks are read, `check_found` compares what they found with the sample. If the two differ, nothing is written,
and `settled` starts again with the kinds of the whole input: the result is the same as if these were known from the
start.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from infeed.components.example_gen.inputs import BadRow, Findings, OpenedSource, Sample, to_jsonl
from infeed.components.example_gen.planning import SpilledTask

A = TypeVar("A")
_log = logging.getLogger(__name__)


class OtherKindsError(Exception):
    """The kinds of the columns are not those of the sample.

    Args:
      kinds: what `OpenedSource.reopen` takes.
    """

    def __init__(self, kinds: Any) -> None:
        super().__init__(kinds)
        self.kinds = kinds


def settled(opened: OpenedSource, attempt: Callable[[OpenedSource], A]) -> A:
    """Calls `attempt` with the source, and again if it raises OtherKindsError, with the kinds that this names."""
    try:
        return attempt(opened)
    except OtherKindsError as error:
        assert opened.reopen, "only a source with a sample has other kinds"
        again = opened.reopen(error.kinds)
    _log.warning("%s", _reason(opened, again))
    return settled(again, attempt)


def check_found(found: Sequence[Findings], sample: Sample) -> None:
    """Compares the kinds of all tasks, in their order, with those of the sample.

    Raises:
      OtherKindsError: they differ.
    """
    if any(one.astray for one in found):
        raise OtherKindsError(None)
    merged = sample.merge(found)
    if json.dumps(merged) != json.dumps(sample.kinds):  # which compares the order of columns, too
        raise OtherKindsError(merged)


def line_offsets(findings: Iterable[tuple[int, Findings | None]]) -> dict[int, int]:
    """Map the number of a task to what to add to the lines of its bad rows.

    Args:
      findings: (number, findings) of each task, in the order of the tasks.
    """
    offsets, after = dict[int, int](), 0
    for order, found in findings:
        if found is not None:
            offsets[order] = after if found.line is None else 0
            after += found.lines if found.line is None else found.line - 1 + found.lines - after
    return {order: offset for order, offset in offsets.items() if offset}


def with_lines(task: SpilledTask, offset: int) -> SpilledTask:
    """The task, its bad rows with the numbers of their lines in the file."""
    first, last = (row and shifted(row, offset) for row in (task.first_rejected, task.last_rejected))
    return dataclasses.replace(task, first_rejected=first, last_rejected=last)


def shift_lines(rows: bytes, offset: int) -> bytes:
    """Bad rows as `inputs.to_jsonl` writes them, with the numbers of their lines in the file."""
    if not offset:
        return rows
    found = [BadRow(**json.loads(row)) for row in rows.decode().removesuffix("\n").split("\n")]
    return to_jsonl(shifted(row, offset) for row in found)


def shifted(row: BadRow, offset: int) -> BadRow:
    """Return the row with its line moved by `offset`."""
    return row if row.line is None else dataclasses.replace(row, line=row.line + offset)


def _reason(before: OpenedSource, after: OpenedSource) -> str:
    types: Mapping[str, str] = {field.name: str(field.type) for field in before.schema}
    wider = [
        f"{field.name!r} ({types.get(field.name, 'none')} in a sample, {field.type} in all rows)"
        for field in after.schema
        if types.get(field.name) != str(field.type)
    ]
    if not wider:
        return "the input is looked through by one process first, since parts of it do not show how to read them"
    more = f" and {len(wider) - 5} more" if len(wider) > 5 else ""
    return (
        f"the input is read again, since a sample did not show the types of all columns: {', '.join(wider[:5])}{more}; "
        "to read it once, give their types (for CSV: types)"
    )
