"""File and folder names that writers and readers of a dataset agree on.

ROOT/manifest.json
ROOT/Split-train/data_tfrecord-00000-of-00012.gz
ROOT/rejected.jsonl                                     rejected rows, if there are any
ROOT/statistics-train.json                              column statistics of a split
ROOT/.ingest/...                                        unfinished output of a running ingest
"""

from __future__ import annotations

import re
from collections.abc import Collection

from infeed.components.dataset import files

MANIFEST = "manifest.json"
REJECTS = "rejected.jsonl"
STATISTICS = "statistics-"  # and the name of a split
PREFIX = "data_tfrecord"
SPLIT_FOLDER = "Split-"
GZIP_SUFFIX = ".gz"
FEATURE_INPUTS = "feature_inputs.json"  # of a transform graph: feature -> raw columns that it depends on
DATE_FORMATS = "date_formats.json"  # of a transform graph: raw text column -> formats of the dates that are read
RAW_COLUMNS = "assets.extra/raw_columns.json"  # of a SavedModel: its columns, and the options of their source files
UNFINISHED = ".ingest"  # beside the splits during ingest. The dot hides it from the globs of readers

_NUMBERED = re.compile(r"-\d{5}-of-\d{5}(\.\w+)?$")


def split_folder(split: str) -> str:
    """Return the folder of a split relative to the root of the dataset: `train` -> `Split-train`."""
    return f"{SPLIT_FOLDER}{split}"


def split_dir(root: str, split: str) -> str:
    """Return the folder of one split. It contains only shards, because readers treat every file in it as data."""
    return files.join(root, split_folder(split))


def folder_splits(root: str) -> list[str]:
    """Return the names of the splits that have a folder in `root`."""
    found = files.list_folders(root)
    return [folder.removeprefix(SPLIT_FOLDER) for folder in found if folder.startswith(SPLIT_FOLDER)]


def statistics_file(root: str, split: str) -> str:
    """Return the path of the column statistics of one split: `ROOT/statistics-train.json`."""
    return files.join(root, f"{STATISTICS}{split}.json")


def is_statistics(file: str) -> bool:
    return file.startswith(STATISTICS) and file.endswith(".json")


def shard_name(index: int, count: int, gzip: bool, prefix: str = PREFIX) -> str:
    """Return the name of a shard, `data_tfrecord-00000-of-00012.gz`. The suffix determines the compression."""
    if not 0 <= index < count:
        raise ValueError(f"shard {index} of {count}: the index must be in [0, {count})")
    return f"{prefix}-{index:05d}-of-{count:05d}{GZIP_SUFFIX if gzip else ''}"


def are_shard_names(found: Collection[str]) -> bool:
    """Return whether these are exactly the names that `shard_name` gives the shards of one split."""
    return any(
        sorted(found) == sorted(shard_name(index, len(found), gzip) for index in range(len(found)))
        for gzip in (False, True)
    )


def is_numbered(name: str) -> bool:
    """Return whether a file is named as one of several shards, such as `a.tfrecord-00000-of-00012.gz`."""
    return _NUMBERED.search(name) is not None


def is_file_name(name: str) -> bool:
    """Return whether readers include a file of this name: no path, not hidden, only printable characters."""
    return bool(name) and name.isprintable() and "/" not in name and not files.is_hidden(name)
