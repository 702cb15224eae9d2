"""NVIDIA DALI on the CPU: the same TFRecord shards, DALI's operators, one warp per image."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import nvidia.dali.fn as fn
import nvidia.dali.tfrecord as tfrecord
import nvidia.dali.types as types
from nvidia.dali import math, pipeline_def
from protocol import SIDE, Batches, Job, serve

_FRAMING = 16  # bytes before and after a TFRecord's payload


def make(job: Job) -> Batches:
    indexes = [index(path, job.scratch / f"{job.kind}-{number}.index") for number, path in enumerate(job.shards)]
    built = pipeline(job, indexes, batch_size=job.batch, num_threads=job.workers, device_id=None, seed=1)
    built.build()
    return batches(built)


def batches(built: Any) -> Batches:
    while True:
        images, labels = built.run()
        yield images.as_array(), labels.as_array()


@pipeline_def
def pipeline(job: Job, indexes: list[str]) -> tuple[Any, Any]:
    features = {
        "image": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "label": tfrecord.FixedLenFeature([1], tfrecord.int64, 0),
    }
    read = fn.readers.tfrecord(
        path=job.shards, index_path=indexes, features=features, random_shuffle=True, initial_fill=1_000
    )
    if job.kind == "png":
        images = fn.decoders.image(read["image"], device="cpu", output_type=types.RGB)
    else:
        images = fn.reshape(read["image"], shape=[SIDE, SIDE, 3], layout="HWC")
    return change(images, job.recipe), read["label"]


def change(images: Any, recipe: Any) -> Any:
    shift = fn.random.uniform(range=[-recipe.shift - 0.5, recipe.shift + 0.5], shape=[2])
    angle = fn.random.uniform(range=[-recipe.rotate, recipe.rotate])
    center = [SIDE / 2, SIDE / 2]
    mirror = fn.random.coin_flip() * 2.0 - 1.0
    matrix = fn.transforms.rotation(angle=angle, center=center)
    matrix = fn.transforms.scale(matrix, scale=fn.stack(mirror, 1.0), center=center)
    matrix = fn.transforms.translation(matrix, offset=math.floor(shift + 0.5))
    images = fn.warp_affine(images, matrix=matrix, interp_type=types.INTERP_LINEAR)
    images = fn.brightness_contrast(
        images,
        brightness_shift=fn.random.uniform(range=[-recipe.brightness, recipe.brightness]),
        contrast=fn.random.uniform(range=[1 - recipe.contrast, 1 + recipe.contrast]),
        contrast_center=128.0,
    )
    images = fn.crop_mirror_normalize(
        images, dtype=types.FLOAT, output_layout="HWC", mean=[recipe.mean * 255] * 3, std=[recipe.std * 255] * 3
    )
    anchor = math.floor(fn.random.uniform(range=[0, SIDE], shape=[2])) - recipe.cutout // 2
    return fn.erase(images, anchor=anchor, shape=[recipe.cutout, recipe.cutout], axis_names="HW", fill_value=0.0)


def index(path: str, to: Path) -> str:
    """Write the index file that DALI requires: offset and size of each record of a TFRecord file."""
    data, at, lines = Path(path).read_bytes(), 0, []
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0] + _FRAMING
        lines.append(f"{at} {size}\n")
        at += size
    to.write_text("".join(lines))
    return str(to)


if __name__ == "__main__":
    serve(make)
