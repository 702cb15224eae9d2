"""The batches and the rows of an opened source, task after task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from infeed.components.example_gen.inputs import BadRows, OpenedSource


def batches_of(opened: OpenedSource, bad_rows: BadRows | None = None) -> Iterator[pa.RecordBatch]:
    """All batches in order, each of the source's schema. The first bad row is an error unless `bad_rows` takes it."""
    for task in opened.tasks:
        for batch in opened.read(task.payload, bad_rows=bad_rows or BadRows()):
            assert batch.schema == opened.schema
            yield batch


def rows_of(opened: OpenedSource, bad_rows: BadRows | None = None) -> list[dict[str, Any]]:
    return [row for batch in batches_of(opened, bad_rows) for row in batch.to_pylist()]
