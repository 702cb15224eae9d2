"""Shuffled batches of a table for a custom training loop: `infeed.load` and other libraries for arrays.

    python benchmarks/load.py
    python benchmarks/load.py --batch 1024 --seconds 2

Each contender is one process without workers, in a separate environment that is first installed from PyPI (about 5 GB,
most of it torch with its CUDA libraries). Contenders take turns. The benchmark compares CPU and wall time of a row.
Every library runs in its fastest way, as its maintainers would write it, and in the ways of most programs. The others
hold their arrays in memory; ours maps columns that it has decoded from TFRecords.

The reference is `np.take` alone, on arrays in NumPy's own permutation. For batches that TensorFlow passes to Python,
the limit is one batch that repeats. The benchmark refuses a figure whose CPU time exceeds wall time times cores.
`load/arrays.py` defines the task.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
from contenders import Contender, Contest, contest
from harness import Result

from infeed.components.dataset import records
from infeed.components.dataset.encode import encode_examples

SCRIPTS = Path(__file__).parent / "load"
COLUMNS = 20
TORCH, GRAIN = ("torch",), ("grain", "array-record")

CONTENDERS = (
    Contender("ours, one feature", "infeed_arrays.py", options=("--how=together alone numpy",)),
    Contender("ours, 20 features", "infeed_arrays.py", options=("--how=named alone numpy",)),
    Contender("ours, 20 features packed", "infeed_arrays.py", options=("--how=named packed numpy",)),
    Contender("ours, tf, one feature", "infeed_arrays.py", options=("--how=together alone tf",)),
    Contender("ours, tf, 20 features", "infeed_arrays.py", options=("--how=named alone tf",)),
    Contender("ours, tf, 20 features packed", "infeed_arrays.py", options=("--how=named packed tf",)),
    Contender("np.take alone", "take.py"),
    Contender("torch randperm", "torch_arrays.py", TORCH, ("--how=permutation",)),
    Contender("torch BatchSampler", "torch_arrays.py", TORCH, ("--how=batches",)),
    Contender("torch by row", "torch_arrays.py", TORCH, ("--how=rows",)),
    Contender("Grain, batches", "grain_arrays.py", GRAIN, ("--how=batches",)),
    Contender("Grain, rows", "grain_arrays.py", GRAIN, ("--how=rows",)),
    Contender("Grain, ArrayRecord", "grain_arrays.py", GRAIN, ("--how=records",)),
    Contender("Hugging Face, rewritten", "huggingface_arrays.py", ("datasets",), ("--how=rewritten",)),
    Contender("Hugging Face, stream", "huggingface_arrays.py", ("datasets",), ("--how=stream",)),
    Contender("Hugging Face, by number", "huggingface_arrays.py", ("datasets",), ("--how=rows",)),
    Contender("tf.data, permutation", "tf_arrays.py", options=("--how=permutation",)),
    Contender("tf.data, shuffle", "tf_arrays.py", options=("--how=shuffle",)),
    Contender("tf.data, one batch again", "tf_arrays.py", options=("--how=again",)),
)


@click.command()
@click.option("--rows", default=200_000, show_default=True)
@click.option("--batch", "batches", default=[64, 1024, 8192], show_default=True, multiple=True, type=int)
@contest("load", SCRIPTS, "rows", CONTENDERS, seconds=1.0)
def main(contest: Contest, rows: int, batches: Sequence[int]) -> Iterator[Result]:
    """Measure libraries that gather batches."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), rows)
        for size in batches:
            yield from contest.results(
                f"{rows:,} rows of {COLUMNS} floats, batch {size:,}, a row", [f"--folder={folder}", f"--batch={size}"]
            )


def write(folder: Path, rows: int) -> None:
    """Write the table in the formats of `load/arrays.py`. The label of a row is its number."""
    x, y = np.random.default_rng(0).random((rows, COLUMNS), np.float32), np.arange(rows)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    together = {"x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), COLUMNS), "y": pa.array(y)}
    named = {**{f"x{column:02}": pa.array(x[:, column]) for column in range(COLUMNS)}, "y": pa.array(y)}
    for name, columns in {"together": together, "named": named}.items():
        framed = records.frame_records(encode_examples(pa.record_batch(list(columns.values()), list(columns))))
        records.write_records(str(folder / name / "rows-train.tfrecord"), [framed], gzip_level=None)


if __name__ == "__main__":
    main()
