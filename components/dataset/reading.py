"""Read the manifest of any TFRecord dataset, verify its files and inspect its examples.

A dataset lies in Split-* folders, or, as TFDS and many others write it, in one folder or file. What a split is called
stands in the names of its files there, before the suffix: `mnist-train.tfrecord-00000-of-00001`.

shown = infeed.inspect("data")
shown.manifest.splits["train"].records, shown.examples[0].features["fare"].values
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

from infeed.components.dataset import files, names, records
from infeed.components.dataset.checksums import Expected, verify
from infeed.components.dataset.decode import Example, decode_example
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.dataset.ranges import MapFn
from infeed.components.errors import InfeedError

COUNTED = re.compile("counted-[0-9a-f]{32}")  # folders of `cache_dir` that hold the count of a dataset
_log = logging.getLogger(__name__)
_NAME = re.compile(r"(?P<stem>.*?)([-.]?\d+-of-\d+)?[._]tfrecords?([-.]\d+-of-\d+)?(\.gz)?", re.IGNORECASE)


def manifest_of(root: str, cache_dir: str | None = None, map_fn: MapFn = map) -> Manifest:
    """Return the manifest of any TFRecord dataset; see `manifests_of`."""
    return manifests_of([root], cache_dir, map_fn)[root]


def manifests_of(roots: Iterable[str], cache_dir: str | None = None, map_fn: MapFn = map) -> dict[str, Manifest]:
    """Return the manifests of TFRecord datasets by root. Any tool may have written the datasets.

    One without a manifest is counted once by walking its record framing; the count is kept in `cache_dir`, keyed by the
    place, names, sizes and times of its files, and never written into the dataset. A count that is damaged is made
    again, and so is one that could not be kept.

    Args:
      map_fn: counts the files of all of them in one call, such as `Engine.map`; by default one by one in this process.

    Raises:
      InfeedError: where a root holds no split, is not finished, or a file is truncated or corrupt.
    """
    found = {root: _known_manifest(root, cache_dir) for root in dict.fromkeys(roots)}
    uncounted = [one for one in found.values() if isinstance(one, _Uncounted)]
    counted = iter(map_fn(_count_file, [file for one in uncounted for file in one.counting()]))
    made = {one.root: one.manifest(counted) for one in uncounted}
    return {root: one if isinstance(one, Manifest) else made[root] for root, one in found.items()}


def _known_manifest(root: str, cache_dir: str | None) -> Manifest | _Uncounted:
    if files.exists(files.join(root, names.MANIFEST)):
        return Manifest.read(root)
    if files.exists(files.join(root, names.UNFINISHED)):
        raise InfeedError(
            "a dataset that is not finished", where=root, do="wait for its writer, or write it again if that was killed"
        )
    folders = {folder: files.list_files(files.join(root, folder)) for folder in _split_folders(root)}
    found = [file for inside in folders.values() for file in inside]
    source = Source.of("tfrecord", root, found)
    by_split = {
        folder.removeprefix(names.SPLIT_FOLDER): [file for file in inside if not files.is_hidden(file.path)]
        for folder, inside in folders.items()
    }
    cached = files.join(cache_dir, f"counted-{_version_of(root, found)}") if cache_dir is not None else None
    kept = _kept_count(files.join(cached, names.MANIFEST), source) if cached else None
    return kept or _Uncounted(root, by_split, source, cached)


def flat_manifest(path: str) -> tuple[str, Manifest] | None:
    """The folder and what its TFRecord files hold, counted by walking their framing; None where there is none.

    Args:
      path: a folder, whose TFRecord files are looked at and no others, or one such file.

    Raises:
      InfeedError: a file is truncated or corrupt.
    """
    root, by_split = flat_files(path)
    shards = sorted((file for found in by_split.values() for file in found), key=lambda file: file.path)
    uncounted = _Uncounted(root, by_split, Source.of("tfrecord", root, shards))
    return (root, uncounted.manifest(map(_count_file, uncounted.counting()))) if shards else None


def flat_files(path: str) -> tuple[str, dict[str, list[FileStat]]]:
    """The folder, and the TFRecord files of each split that lie in it side by side, by path; as `flat_manifest`."""
    if files.exists(path) and not files.is_folder(path):
        root = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        found = files.glob(root, files.name(path))  # nothing where it is a device or a pipe
    else:
        root, found = path, files.glob(path, "*")
    by_split: dict[str, list[FileStat]] = {}
    for file in found:
        if _NAME.fullmatch(files.name(file.path)):
            by_split.setdefault(_split_of(file, root), []).append(file)
    return root, by_split


def check_listed(folder: str, listed: Set[str]) -> None:
    """A split's folder holds the files of the manifest and no others, which other readers would take for data.

    Raises:
      InfeedError: with the name of the first that is missing or too many.
    """
    there = {files.name(file.path) for file in files.list_files(folder) if not files.is_hidden(file.path)}
    for found, what in ((listed - there, "missing"), (there - listed, "not of this dataset")):
        if found:
            more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
            raise InfeedError(
                f"{min(found)}{more} {'is' if len(found) == 1 else 'are'} {what}: manifest.json tells of other files",
                where=folder,
                do="write the dataset again, into a new folder",
            )


def expected_file(path: str) -> Expected | None:
    """Return the size and checksum of a file in its manifest, or None if no manifest lists the file."""
    return _expected_in(posixpath.dirname(path)).get(path)


def listed_files(folder: str) -> set[str]:
    """Names of the files that a manifest lists in the folder of a split; none where there is no manifest."""
    return {files.name(path) for path in _expected_in(folder)}


def _kept_count(path: str, source: Source) -> Manifest | None:
    """An earlier count of the same files, where there is one that can be read."""
    try:
        kept = Manifest.from_json(files.read_bytes(path))
        if kept.source != source:
            raise ValueError("it is of other files")
    except ValueError as error:
        _log.warning("the count kept in %s is damaged, so the records are counted again: %s", path, error)
        return None
    except OSError:
        return None  # there is none, or no folder to keep one in
    return kept


def _version_of(root: str, found: list[FileStat]) -> str:
    """Another one for every dataset, and after every change of a file of it."""
    lines = [os.path.abspath(root) if files.is_local(root) else root]
    lines += sorted(f"{files.relative(file.path, root)}\t{files.version(file)}" for file in found)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class _Uncounted:
    """A dataset without a manifest.

    Attributes:
      by_split: the files of each split.
      cached: folder in which its count is kept; None: nowhere.
    """

    root: str
    by_split: Mapping[str, Sequence[FileStat]]
    source: Source
    cached: str | None = None

    def counting(self) -> list[_Counting]:
        """The files that are to be counted."""
        return [_Counting(self.root, file.path, file.size) for of_split in self.by_split.values() for file in of_split]

    def manifest(self, counted: Iterator[Shard]) -> Manifest:
        """Takes the counts of its files, made by walking the framing of each."""
        splits = {
            split: Split.of(tuple(itertools.islice(counted, len(of_split))))
            for split, of_split in self.by_split.items()
        }
        rows = sum(split.records for split in splits.values())
        made = Manifest(source=self.source, options={}, schema=(), splits=splits, rows_read=rows)
        if self.cached:
            with suppress(OSError, InfeedError):
                made.write(self.cached)
        return made


@dataclass(frozen=True)
class _Counting:
    """A file that is to be counted; `bytes` tells engines its size."""

    root: str
    path: str
    bytes: int

    @property
    def place(self) -> str:
        return self.path


def _count_file(file: _Counting) -> Shard:
    return Shard(
        file=files.relative(file.path, file.root),
        records=records.count_records(file.path),
        bytes=file.bytes,
        crc32c=records.file_crc32c(file.path),
    )


def _split_folders(root: str) -> list[str]:
    inside = files.list_folders(root) if files.is_folder(root) else []
    folders = [folder for folder in inside if folder.startswith(names.SPLIT_FOLDER)]
    if not folders:
        raise InfeedError(
            "not a TFRecord dataset: no Split-* folder",
            where=root,
            do="point at the folder that holds Split-train and its like, such as an Examples artifact",
        )
    return folders


def _expected_in(folder: str) -> Mapping[str, Expected]:
    root, name = posixpath.split(folder)
    if not name.startswith(names.SPLIT_FOLDER):
        return {}  # a manifest.json there would be somebody else's
    try:
        version = files.version(files.stat(files.join(root, names.MANIFEST)))
    except FileNotFoundError:
        return {}
    return _expected_of(folder, version)


@functools.lru_cache(maxsize=64)  # a worker reads many files of a split
def _expected_of(folder: str, version: str) -> Mapping[str, Expected]:
    del version  # of the manifest: another one is read anew
    root = posixpath.dirname(folder)
    shards = (shard.expected(root) for split in Manifest.read(root).splits.values() for shard in split.shards)
    return {expected.path: expected for expected in shards if posixpath.dirname(expected.path) == folder}


def _split_of(file: FileStat, root: str) -> str:
    if (folder := files.name(root)).startswith(names.SPLIT_FOLDER):
        return folder.removeprefix(names.SPLIT_FOLDER)
    found = _NAME.fullmatch(files.name(file.path))
    return (found["stem"].rpartition("-")[2] if found else "") or "all"


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


def inspect(where: str | os.PathLike[str], split: str | None = None, examples: int = 2) -> Inspection:
    """Looks at what `ingest` wrote, an Examples artifact, a folder of TFRecord files, or one such file.

    Args:
      split: whose examples to show; by default the first.
      examples: how many.

    Raises:
      InfeedError: there is no dataset or no such split, or a file is damaged.
    """
    place = files.path_text(where, "infeed.inspect, where")
    found = open_dataset(place)
    if found is None:
        do = "point at a folder that holds Split-train and its like, or at TFRecord files"
        raise InfeedError("not a TFRecord dataset", where=place, do=do)
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
