"""Verification of column kinds from a sample, and correction of line numbers of bad rows.

`check_found` compares the findings of all tasks with the sample. If they differ, nothing is written, and `settled`
starts again with the kinds of the whole input. The result is the same as with kinds known from the start.
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
    """The column kinds of the input differ from those of the sample. `OpenedSource.reopen` takes `kinds`."""

    def __init__(self, kinds: Any) -> None:
        super().__init__(kinds)
        self.kinds = kinds


def settled(opened: OpenedSource, attempt: Callable[[OpenedSource], A]) -> A:
    """Call `attempt` with the source. If it raises OtherKindsError, reopen the source and retry."""
    try:
        return attempt(opened)
    except OtherKindsError as error:
        assert opened.reopen, "only a source with a sample can have other kinds"
        again = opened.reopen(error.kinds)
    _log.warning("%s", _reason(opened, again))
    return settled(again, attempt)


def check_found(found: Sequence[Findings], sample: Sample) -> None:
    """Raise OtherKindsError if the kinds in all tasks, in order, differ from those of the sample."""
    if any(one.astray for one in found):
        raise OtherKindsError(None)
    merged = sample.merge(found)
    if json.dumps(merged) != json.dumps(sample.kinds):  # unlike ==, this compares the order of columns
        raise OtherKindsError(merged)


def line_offsets(findings: Iterable[tuple[int, Findings | None]]) -> dict[int, int]:
    """Map the index of a task to the offset of the line numbers of its bad rows. Zero offsets are omitted.

    `findings` holds (index, findings) of each task, in order.
    """
    offsets, after = dict[int, int](), 0
    for order, found in findings:
        if found is not None:
            offsets[order] = after if found.line is None else 0
            after += found.lines if found.line is None else found.line - 1 + found.lines - after
    return {order: offset for order, offset in offsets.items() if offset}


def with_lines(task: SpilledTask, offset: int) -> SpilledTask:
    """Add the line offset to the bad rows of a task."""
    first, last = (row and shifted(row, offset) for row in (task.first_rejected, task.last_rejected))
    return dataclasses.replace(task, first_rejected=first, last_rejected=last)


def shift_lines(rows: bytes, offset: int) -> bytes:
    if not offset:
        return rows
    found = [BadRow(**json.loads(row)) for row in rows.decode().removesuffix("\n").split("\n")]
    return to_jsonl(shifted(row, offset) for row in found)


def shifted(row: BadRow, offset: int) -> BadRow:
    return row if row.line is None else dataclasses.replace(row, line=row.line + offset)


def _reason(before: OpenedSource, after: OpenedSource) -> str:
    types: Mapping[str, str] = {field.name: str(field.type) for field in before.schema}
    wider = [
        f"{field.name!r} ({types.get(field.name, 'none')} in a sample, {field.type} in all rows)"
        for field in after.schema
        if types.get(field.name) != str(field.type)
    ]
    if not wider:
        return "one process scans the input first, because parts of it cannot be read independently"
    more = f" and {len(wider) - 5} more" if len(wider) > 5 else ""
    return (
        f"reading the input again, because the types differ from a sample: {', '.join(wider[:5])}{more}. "
        "Set the types (CSV: types) to read it once"
    )
