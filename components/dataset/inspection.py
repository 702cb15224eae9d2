"""What a dataset holds, whoever wrote it: its manifest, and its first examples.

shown = infeed.inspect("data")
shown.manifest.splits["train"].records, shown.examples[0].features["fare"].values
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from infeed.components.dataset import files, names, records
from infeed.components.dataset.checksums import Expected, verify
from infeed.components.dataset.decode import Example, decode_example
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.reading import flat_manifest, manifest_of
from infeed.components.errors import InfeedError


@dataclass(frozen=True)
class Inspection:
    """A dataset as `inspect` found it.

    Attributes:
      root: the folder that shards are relative to.
      manifest: what lies there; its schema is empty for a dataset that somebody else wrote.
      split: whose examples are shown.
      examples: the first ones; none where the records are no tf.Examples.
    """

    root: str
    manifest: Manifest
    split: str
    examples: tuple[Example, ...]


def inspect(where: str, split: str | None = None, examples: int = 2) -> Inspection:
    """Looks at what `ingest` wrote, an Examples artifact, a folder of TFRecord files, or one such file.

    Args:
      split: whose examples to show; by default the first.
      examples: how many.

    Raises:
      InfeedError: there is no dataset or no such split, or a file is damaged.
    """
    found = open_dataset(where)
    if found is None:
        do = "point at a folder that holds Split-train and its like, or at TFRecord files"
        raise InfeedError("not a TFRecord dataset", where=where, do=do)
    root, manifest = found
    name = split or next(iter(manifest.splits))
    return Inspection(root, manifest, name, tuple(first_examples(root, manifest, name, examples)))


def open_dataset(where: str) -> tuple[str, Manifest] | None:
    """The folder that shards are relative to, and what they hold; None where there is something else.

    Raises:
      InfeedError: there is nothing, or the dataset is not finished or damaged.
    """
    if not files.exists(where):
        raise InfeedError("no such file or folder", where=where, do="check the path")
    marks = (names.MANIFEST, names.UNFINISHED)
    folders = files.list_folders(where) if files.is_folder(where) else []
    is_split = any(folder.startswith(names.SPLIT_FOLDER) for folder in folders)
    if is_split or any(files.exists(files.join(where, mark)) for mark in marks):
        return where, manifest_of(where)
    return flat_manifest(where)


def first_examples(root: str, manifest: Manifest, split: str, count: int) -> list[Example]:
    """At most so many; none where the records are no tf.Examples, which are counted and not shown."""
    if split not in manifest.splits:
        raise InfeedError(f"no split {split!r}", where=root, do=f"choose one of {', '.join(manifest.splits)}")
    shards = (shard.expected(root) for shard in manifest.splits[split].shards)
    first = itertools.islice(itertools.chain.from_iterable(map(_records, shards)), count)
    try:
        return [decode_example(record) for record in first]
    except ValueError:
        return []


def _records(shard: Expected) -> Iterator[bytes]:
    verify([shard])
    return records.read_records(shard.path)
