"""LitData: its optimized format with JPEG files as they are, Pillow, worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litdata
import numpy as np
from jpegs import Batches, Job, serve
from torch.utils.data import get_worker_info
from window_pillow import window


class Pictures(litdata.StreamingDataset):
    """Stream that decodes and cuts each picture."""

    def __init__(self, folder: str, kind: str) -> None:
        super().__init__(folder, shuffle=True, drop_last=True)
        self.kind, self.random = kind, np.random.default_rng(0)
        self.seeded = False

    def __getitem__(self, index: Any) -> tuple[Any, int]:
        if not self.seeded and (worker := get_worker_info()):
            self.random, self.seeded = np.random.default_rng(worker.seed), True
        row = super().__getitem__(index)
        return window(row["jpg"], self.kind, self.random), row["label"]


def example(row: tuple[str, int]) -> dict[str, Any]:
    return {"jpg": Path(row[0]).read_bytes(), "label": row[1]}


def make(job: Job) -> Batches:
    folder, rows = str(job.folder / f"litdata-{job.kind}"), list(zip(job.paths, job.labels.tolist(), strict=True))
    litdata.optimize(example, rows, folder, chunk_bytes="16MB", num_workers=1)
    loader = litdata.StreamingDataLoader(
        Pictures(folder, job.kind), batch_size=job.batch, num_workers=job.workers, persistent_workers=True
    )
    while True:
        yield from loader


if __name__ == "__main__":
    serve(make)
