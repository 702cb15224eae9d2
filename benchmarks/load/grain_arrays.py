"""Grain: two arrays or an ArrayRecord file, read as rows or as a source of batches, with exact shuffles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain.python as grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from arrays import Job, serve

_LABEL_BYTES = 8
_EPOCHS = 1 << 30


class Rows:
    """Random-access data source of rows."""

    def __init__(self, job: Job) -> None:
        self.x, self.y = job.x, job.y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: Any) -> Any:
        return {"x": self.x[row], "y": self.y[row]}


class Batches:
    """Random-access data source of shuffled batches, one epoch after the other."""

    def __init__(self, job: Job) -> None:
        self.x, self.y, self.batch = job.x, job.y, job.batch
        self.steps = len(self.x) // job.batch
        self.epoch, self.order = -1, np.empty(0, np.int64)

    def __len__(self) -> int:
        return self.steps * _EPOCHS

    def __getitem__(self, number: Any) -> Any:
        epoch, step = divmod(int(number), self.steps)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, np.random.default_rng(epoch).permutation(len(self.x))
        rows = self.order[step * self.batch : (step + 1) * self.batch]
        return {"x": np.take(self.x, rows, axis=0), "y": np.take(self.y, rows)}


def make(job: Job) -> Iterator[Any]:
    # No threads, because they would wait for one another and use as much CPU per row.
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    if job.how == "batches":
        return iter(grain.MapDataset.source(Batches(job)).to_iter_dataset(options))
    if job.how == "rows":
        rows = grain.MapDataset.source(Rows(job)).shuffle(seed=1).repeat()
    else:
        rows = grain.MapDataset.source(grain.ArrayRecordDataSource([write(job)])).shuffle(seed=1).repeat().map(decode)
    return iter(rows.batch(job.batch, drop_remainder=True).to_iter_dataset(options))


def decode(record: bytes) -> Any:
    return {"x": np.frombuffer(record, np.float32, offset=_LABEL_BYTES), "y": np.frombuffer(record, np.int64, 1)[0]}


def write(job: Job) -> str:
    """Write the rows as one ArrayRecord file: label, then the columns."""
    path = job.folder / "rows.arrayrecord"
    if not path.exists():
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for x, y in zip(job.x, job.y, strict=True):
            writer.write(y.tobytes() + x.tobytes())
        writer.close()
    return str(path)


if __name__ == "__main__":
    serve(make)
