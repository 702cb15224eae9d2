"""Grain: rows of two arrays, or of an ArrayRecord file, in an exact shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from arrays import Job, serve

_LABEL_BYTES = 8


class Rows:
    """A random-access data source of Grain's."""

    def __init__(self, job: Job) -> None:
        self.x, self.y = job.x, job.y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: Any) -> Any:
        return {"x": self.x[row], "y": self.y[row]}


def make(job: Job) -> Iterator[Any]:
    if job.how == "arrays":
        rows = grain.MapDataset.source(Rows(job)).shuffle(seed=1).repeat()
    else:
        source = grain.sources.ArrayRecordDataSource([write(job)])
        rows = grain.MapDataset.source(source).shuffle(seed=1).repeat().map(decode)
    # Threads wait for one another, and take as much CPU a row.
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return iter(rows.batch(job.batch, drop_remainder=True).to_iter_dataset(options))


def decode(record: bytes) -> Any:
    return {"x": np.frombuffer(record, np.float32, offset=_LABEL_BYTES), "y": np.frombuffer(record, np.int64, 1)[0]}


def write(job: Job) -> str:
    """The rows as one ArrayRecord file: label, then the columns."""
    path = job.folder / "rows.arrayrecord"
    if not path.exists():
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for x, y in zip(job.x, job.y, strict=True):
            writer.write(y.tobytes() + x.tobytes())
        writer.close()
    return str(path)


if __name__ == "__main__":
    serve(make)
