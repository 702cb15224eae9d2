"""JPEG files of 256 x 256 pixels as random windows of 224 x 224: `infeed.load(decode=)` and other loaders.

    python benchmarks/jpeg.py
    python benchmarks/jpeg.py --kind cut --workers 8

Each contender is one process with as many threads or workers, in a separate environment that is first installed from
PyPI (about 5 GB, most of it torch with its CUDA libraries). SPDL decodes by Pillow, because the wheel of spdl-io 0.8
needs FFmpeg from the system. Contenders take turns. The benchmark compares the CPU time of a picture, including worker
processes, and the wall time. `jpeg/jpegs.py` defines the task.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import click
import gpu_data
import numpy as np
import pyarrow as pa
from contenders import Contender, Contest, contest
from harness import Result

from infeed.components.dataset import records
from infeed.components.dataset.encode import encode_examples

SCRIPTS = Path(__file__).parent / "jpeg"
SHARDS = 4
CORE = ("click", "google-crc32c", "isal", "jinja2", "lazy-loader", "protobuf", "pyarrow", "pyarrow-hotfix", "pydantic")
# An environment with the extra `images` runs ours itself. In another, this tree is on the path.
OURS = () if find_spec("simplejpeg") else (*CORE, "pillow", "pyyaml", "rich", "simplejpeg", "cykooz-resizer")

CONTENDERS = (
    Contender("ours", "infeed_pictures.py", OURS),
    Contender("tf.data", "tf_pictures.py"),
    Contender("torch DataLoader, torchvision", "torch_pictures.py", ("torch", "torchvision")),
    Contender("Grain, Pillow", "grain_pictures.py", ("grain", "pillow")),
    Contender("WebDataset, Pillow", "webdataset_pictures.py", ("webdataset", "torch", "pillow")),
    Contender("SPDL, Pillow", "spdl_pictures.py", ("spdl-core", "pillow")),
    Contender("LitData, Pillow", "litdata_pictures.py", ("litdata", "pillow")),
)


@click.command()
@click.option("--pictures", default=2000, show_default=True, help="Pictures in the data set.")
@click.option("--batch", default=64, show_default=True)
@click.option("--kind", "kinds", default=["cut", "resized"], show_default=True, multiple=True)
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Workers or threads of each contender.")
@contest("jpeg", SCRIPTS, "pictures", CONTENDERS, seconds=3.0)
def main(contest: Contest, pictures: int, batch: int, kinds: Sequence[str], workers: int) -> Iterator[Result]:
    """Measure loaders of JPEG files."""
    options = [f"--batch={batch}", f"--workers={workers}"]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), pictures)
        for kind in kinds:
            yield from contest.results(f"{kind}, a picture", [f"--folder={folder}", f"--kind={kind}", *options])


def write(folder: Path, count: int) -> None:
    """Write the pictures in the formats of `jpeg/jpegs.py`."""
    with tempfile.TemporaryDirectory() as scratch:
        arrays = gpu_data.pictures(Path(scratch), gpu_data.Sizes(pictures=count, picture_batch=1)).arrays
    np.save(folder / "labels.npy", arrays["y"])
    (folder / "files").mkdir()
    for row, encoded in enumerate(arrays["jpeg"]):
        (folder / "files" / f"{row:08}.jpg").write_bytes(encoded)
    for shard in range(SHARDS):
        rows = slice(shard, None, SHARDS)
        columns = [pa.array(arrays["jpeg"][rows], pa.binary()), pa.array(arrays["y"][rows])]
        framed = records.frame_records(encode_examples(pa.record_batch(columns, ["image", "label"])))
        path = folder / "records" / f"jpeg-train.tfrecord-{shard:05}-of-{SHARDS:05}"
        records.write_records(str(path), [framed], gzip_level=None)


if __name__ == "__main__":
    main()
