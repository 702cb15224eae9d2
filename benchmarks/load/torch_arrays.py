"""torch: two tensors in memory, gathered by a permutation, or read by a DataLoader in batches or rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from arrays import Job, serve
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

torch.set_num_threads(1)


class Rows(Dataset[Any]):
    """Dataset that returns one row, or a batch of rows."""

    def __init__(self, job: Job) -> None:
        self.x, self.y = torch.from_numpy(job.x), torch.from_numpy(job.y)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> Any:
        return {"x": self.x[rows], "y": self.y[rows]}


def make(job: Job) -> Iterator[Any]:
    rows = Rows(job)
    if job.how == "permutation":
        yield from permuted(rows, job.batch)
    if job.how == "rows":
        loader = DataLoader(rows, job.batch, shuffle=True, drop_last=True)
    else:
        sampler = BatchSampler(RandomSampler(rows), job.batch, drop_last=True)
        loader = DataLoader(rows, batch_size=None, sampler=sampler)
    while True:
        yield from loader


def permuted(rows: Rows, size: int) -> Iterator[Any]:
    whole = len(rows) // size * size
    while True:
        for some in torch.randperm(len(rows))[:whole].split(size):
            yield {"x": rows.x.index_select(0, some), "y": rows.y.index_select(0, some)}


if __name__ == "__main__":
    serve(make)
