"""Names on disk: the whole contract between whoever writes a dataset and whoever reads it.

ROOT/manifest.json
ROOT/Split-train/data_tfrecord-00000-of-00012.gz
ROOT/.ingest/...                                        while it is written
"""

from __future__ import annotations

from infeed.components.dataset import files

MANIFEST = "manifest.json"
PREFIX = "data_tfrecord"
SPLIT_FOLDER = "Split-"
GZIP_SUFFIX = ".gz"
UNFINISHED = ".ingest"  # beside the splits while they are written; a dot keeps it out of every reader's glob


def split_folder(split: str) -> str:
    """`train` -> `Split-train`: where a split lies, relative to the dataset's root."""
    return f"{SPLIT_FOLDER}{split}"


def split_dir(root: str, split: str) -> str:
    """The folder that holds the shards of one split, and nothing else: readers take every file in it as data."""
    return files.join(root, split_folder(split))


def shard_name(index: int, count: int, gzip: bool, prefix: str = PREFIX) -> str:
    """`data_tfrecord-00000-of-00012.gz`; readers tell compression from the suffix."""
    if not 0 <= index < count:
        raise ValueError(f"shard {index} of {count}: the index must be in [0, {count})")
    return f"{prefix}-{index:05d}-of-{count:05d}{GZIP_SUFFIX if gzip else ''}"
