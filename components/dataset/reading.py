"""Read the manifest of any TFRecord dataset, verify and divide its files, and inspect its examples.

A dataset has Split-* folders. A flat dataset, as TFDS writes it, is one file or one folder of files, whose names
contain the split: `mnist-train.tfrecord-00000-of-00001`.

shown = infeed.inspect("data")
shown.manifest.splits["train"].records, shown.examples[0].features["fare"].values
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names, records
from infeed.components.dataset.cache import Expected, check_size, digest, keep_file, kept_file, verify
from infeed.components.dataset.decode import Example, decode_example
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.dataset.records import count_records

RANGE_BYTES = 64 << 20  # on disk. Reading a range of a compressed file skips the records before it
MapFn = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # a function such as `map` or `Engine.map`


@dataclass(frozen=True)
class ShardRange:
    """A run of records of one TFRecord file."""

    split: str  # name of the split. Empty for a file outside Split-* folders.
    path: str
    start: int = 0  # index of the first record
    stop: int | None = None  # index after the last record. None for the end of the file.
    bytes: int = 0  # size on disk, estimated unless the range is the whole file

    @property
    def place(self) -> str:
        """File and records, for errors."""
        if self.start == 0 and self.stop is None:
            return self.path
        return f"{self.path}, records {self.start} to {'the end' if self.stop is None else self.stop - 1}"


def record_ranges(folders: Iterable[str], map_fn: MapFn = map) -> list[ShardRange]:
    """Divide the files of some splits into ranges of about RANGE_BYTES, in the order of folders and file names.

    The ranges depend only on the visible files, so they are the same for every engine. `map_fn` counts large files
    without a manifest, which reads each file once.

    Raises InfeedError if a large file without a manifest is truncated or corrupt, or a manifest cannot be read.
    """
    found = [
        (folder, file) for folder in folders for file in files.list_files(folder) if not files.is_hidden(file.path)
    ]
    counts: dict[str, int] = {}
    for folder in {folder for folder, _ in found}:
        root = posixpath.dirname(folder.rstrip("/"))
        if _split_name(folder) and files.exists(files.join(root, names.MANIFEST)):
            splits = Manifest.read(root).splits.values()
            counts |= {files.join(root, shard.file): shard.records for split in splits for shard in split.shards}
    large = [file.path for _, file in found if file.size > RANGE_BYTES and file.path not in counts]
    counts |= dict(zip(large, map_fn(count_records, large), strict=True))
    return [
        part
        for folder, file in found
        for part in cut(_split_name(folder), file.path, file.size, counts.get(file.path, 0))
    ]


def cut(split: str, path: str, size: int, records: int) -> list[ShardRange]:
    """Divide a file into ranges of equal numbers of records. `records` is 0 if the number is unknown."""
    parts = max(1, min(math.ceil(size / RANGE_BYTES), records))
    bounds = [records * part // parts for part in range(parts)]
    # The last range is open, so that extra data after the last record is found.
    stops: Sequence[int | None] = [*bounds[1:], None]
    return [ShardRange(split, path, start, stop, size // parts) for start, stop in zip(bounds, stops, strict=True)]


def _split_name(folder: str) -> str:
    name = files.name(folder.rstrip("/"))
    return name.removeprefix(names.SPLIT_FOLDER) if name.startswith(names.SPLIT_FOLDER) else ""


_log = logging.getLogger(__name__)
_NAME = re.compile(r"(?P<stem>.*?)([-.]?\d+-of-\d+|[-._]\d+)?[._]tfrecords?([-.]\d+-of-\d+)?(\.gz)?", re.IGNORECASE)


def manifest_of(root: str, cache_dir: str | None = None) -> Manifest:
    """Return the manifest of any TFRecord dataset; see `manifests_of`."""
    return manifests_of([root], cache_dir)[root]


def manifests_of(roots: Iterable[str], cache_dir: str | None = None, map_fn: MapFn = map) -> dict[str, Manifest]:
    """Return the manifests of TFRecord datasets of any writer by root. A root has split folders or flat files.

    The records of a dataset without a manifest are counted once. The count is cached in `cache_dir`, with the path,
    names, sizes and times of the files as the key. It is never written into the dataset. A damaged count is replaced.
    `map_fn`, such as `Engine.map`, counts the files of all datasets in one call.

    Raises InfeedError if a root has no split or is not complete, or a file is truncated or corrupt.
    """
    found = {root: _known_manifest(root, cache_dir) for root in dict.fromkeys(roots)}
    uncounted = [one for one in found.values() if isinstance(one, _Uncounted)]
    counted = iter(map_fn(_count_file, [file for one in uncounted for file in one.counting()]))
    made = {one.root: one.manifest(counted) for one in uncounted}
    return {root: one if isinstance(one, Manifest) else made[root] for root, one in found.items()}


def _known_manifest(root: str, cache_dir: str | None) -> Manifest | _Uncounted:
    if files.exists(files.join(root, names.MANIFEST)):
        return Manifest.read(root)
    flat = flat_splits(root)
    folders = flat or {s: files.list_files(names.split_dir(root, s)) for s in split_names(root)}
    found = [file for inside in folders.values() for file in inside]
    base = folder_of_shards(root)
    source = Source.of("tfrecord", base, found)
    by_split = {split: [file for file in inside if not files.is_hidden(file.path)] for split, inside in folders.items()}
    if cache_dir is None:
        return _Uncounted(root, by_split, source)
    lines = [files.absolute(root), *folders]
    lines += sorted(f"{files.relative(file.path, base)}\t{files.version(file)}" for file in found)
    name = f"counted-{digest(lines)}.json"
    if (content := kept_file(cache_dir, name)) is not None:
        try:
            kept = Manifest.from_json(content, flat=bool(flat))
            if kept.source == source:
                return kept
            raise ValueError("the count belongs to other files")
        except ValueError as error:
            _log.warning("the cached count %s is damaged, counting records again: %s", name, error)
    return _Uncounted(root, by_split, source, (cache_dir, name))


def has_split_folders(root: str) -> bool:
    """Return whether a path is the folder of a dataset with Split-* folders, complete or not."""
    marked = any(files.exists(files.join(root, mark)) for mark in (names.MANIFEST, names.UNFINISHED))
    return files.is_folder(root) and (marked or bool(names.folder_splits(root)))


def flat_splits(root: str) -> dict[str, list[FileStat]]:
    """Return the files of each split of flat TFRecord files: a folder or one file. Empty if there are split folders."""
    return {} if has_split_folders(root) else flat_files(root)[1]


def folder_of_shards(root: str) -> str:
    """Return the folder that shard paths of a manifest are relative to: `root`, or the folder of a single file."""
    return root if files.is_folder(root) else _folder_of(root)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def split_names(root: str) -> list[str]:
    """Return the splits of a TFRecord dataset of any writer, without reading records.

    Raises InfeedError if there is no split, or the dataset is not complete.
    """
    if files.exists(files.join(root, names.MANIFEST)):
        return list(Manifest.read(root).splits)
    if files.exists(files.join(root, names.UNFINISHED)):
        do = "wait for its writer, or write it again if the writer was killed"
        raise InfeedError("the dataset is not complete", where=root, do=do)
    splits = names.folder_splits(root) if files.is_folder(root) else []
    if not splits:
        do = "use a folder with Split-* folders, such as an Examples artifact"
        raise InfeedError("this is not a TFRecord dataset: there is no Split-* folder", where=root, do=do)
    return splits


def flat_manifest(path: str) -> tuple[str, Manifest] | None:
    """Return the folder of flat TFRecord files and a manifest with counted records. None if there are no such files.

    `path` is a TFRecord file, or a folder of TFRecord files, whose other files are skipped. Raises InfeedError if a
    file is truncated or corrupt.
    """
    root, by_split = flat_files(path)
    shards = sorted(file for found in by_split.values() for file in found)
    uncounted = _Uncounted(root, by_split, Source.of("tfrecord", root, shards))
    return (root, uncounted.manifest(map(_count_file, uncounted.counting()))) if shards else None


def flat_files(path: str) -> tuple[str, dict[str, list[FileStat]]]:
    """Return the folder, and the TFRecord files of each split in it, sorted by path; see `flat_manifest`."""
    if files.exists(path) and not files.is_folder(path):
        root = _folder_of(path)
        found = files.glob(root, files.name(path))  # empty for a device or a pipe
    else:
        root, found = path, files.glob(path, "*")
    folder = files.name(files.absolute(root))
    by_split: dict[str, list[FileStat]] = {}
    for file in found:
        if match := _NAME.fullmatch(files.name(file.path)):
            is_split = folder.startswith(names.SPLIT_FOLDER)
            split = folder.removeprefix(names.SPLIT_FOLDER) if is_split else match["stem"].rpartition("-")[2] or "all"
            by_split.setdefault(split, []).append(file)
    return root, by_split


def check_listed(folder: str, listed: Set[str]) -> None:
    """Check that the folder of a split holds exactly the files of the manifest, because other readers read every file.

    Raises InfeedError if a file is missing or not listed. The error names the first.
    """
    there = {files.name(file.path) for file in files.list_files(folder) if not files.is_hidden(file.path)}
    again = "write the dataset again, into a new folder"
    for found, state, do in ((listed - there, "missing", again), (there - listed, "unknown", f"remove it, or {again}")):
        if found:
            more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
            what = f"{min(found)}{more} {'is' if len(found) == 1 else 'are'} {state} according to manifest.json"
            raise InfeedError(what, where=folder, do=do)


def expected_file(path: str) -> Expected | None:
    """Return the size and checksum of a file in its manifest, or None if no manifest lists the file."""
    return _expected_in(posixpath.dirname(path)).get(path)


def listed_files(folder: str) -> set[str]:
    """Return the names of the files that a manifest lists in the folder of a split. Empty without a manifest."""
    return {files.name(path) for path in _expected_in(folder)}


@dataclass(frozen=True)
class _Uncounted:
    """A dataset without a manifest. `cached` is the folder and the file that cache the count, or None for no cache."""

    root: str
    by_split: Mapping[str, Sequence[FileStat]]
    source: Source
    cached: tuple[str, str] | None = None

    def counting(self) -> list[FileToCount]:
        base = folder_of_shards(self.root)
        return [FileToCount(base, file.path, file.size) for of_split in self.by_split.values() for file in of_split]

    def manifest(self, counted: Iterator[Shard]) -> Manifest:
        splits = {
            split: Split.of(tuple(itertools.islice(counted, len(of_split))))
            for split, of_split in self.by_split.items()
        }
        rows = sum(split.records for split in splits.values())
        notes = records.misnamed_gzip(file.path for of_split in self.by_split.values() for file in of_split)
        made = Manifest(source=self.source, options={}, schema=(), splits=splits, rows_read=rows, warnings=notes)
        if self.cached:
            keep_file(*self.cached, made.to_json().encode())
        return made


@dataclass(frozen=True)
class FileToCount:
    """A file to count. Engines use `bytes` as its size."""

    root: str
    path: str
    bytes: int

    @property
    def place(self) -> str:
        return self.path


def _count_file(file: FileToCount) -> Shard:
    return Shard(
        file=files.relative(file.path, file.root),
        records=records.count_records(file.path),
        bytes=file.bytes,
        crc32c=records.file_crc32c(file.path),
    )


def _expected_in(folder: str) -> Mapping[str, Expected]:
    root, name = posixpath.split(folder)
    if not name.startswith(names.SPLIT_FOLDER):
        return {}  # a manifest.json there would be from another program
    try:
        version = files.version(files.stat(files.join(root, names.MANIFEST)))
    except FileNotFoundError:
        return {}
    return _expected_of(folder, version)


@functools.lru_cache(maxsize=64)  # a worker reads many files of a split
def _expected_of(folder: str, version: str) -> Mapping[str, Expected]:
    del version  # part of the cache key: a changed manifest is read again
    root = posixpath.dirname(folder)
    shards = (shard.expected(root) for split in Manifest.read(root).splits.values() for shard in split.shards)
    return {expected.path: expected for expected in shards if posixpath.dirname(expected.path) == folder}


@dataclass(frozen=True)
class Inspection:
    """The result of `inspect`."""

    root: str  # folder that shard paths are relative to
    manifest: Manifest  # content of the dataset. The schema is empty for a dataset of another writer.
    split: str  # split of the examples
    examples: tuple[Example, ...]  # the first examples. Empty if the records are not tf.Examples.


def inspect(where: str | os.PathLike[str], split: str | None = None, examples: int = 2) -> Inspection:
    """Inspect a dataset: output of `ingest`, an Examples artifact, a folder of TFRecord files, or one TFRecord file.

    Args:
      split: split to show examples of. Defaults to the first.
      examples: number of examples to show.

    Raises:
      InfeedError: the dataset or split does not exist, or a file is damaged.
    """
    place = files.path_text(where, "infeed.inspect, where")
    found = open_dataset(place)
    if found is None:
        do = "use a folder with Split-* folders, or TFRecord files"
        raise InfeedError("this is not a TFRecord dataset", where=place, do=do)
    root, manifest = found
    name = split or next(iter(manifest.splits))
    return Inspection(root, manifest, name, tuple(first_examples(root, manifest, name, examples)))


def open_dataset(where: str) -> tuple[str, Manifest] | None:
    """Return the folder that shard paths are relative to, and the manifest. None if the path is not a dataset.

    Raises InfeedError if the path does not exist, the dataset is not complete, or a shard of any split is missing, not
    listed in the manifest, or has another size than there.
    """
    if not files.exists(where):
        raise InfeedError("no such file or folder", where=where, do="check the path")
    if has_split_folders(where):
        manifest = manifest_of(where)
        _check_shards(where, manifest)
        return where, manifest
    return flat_manifest(where)


def _check_shards(root: str, manifest: Manifest) -> None:
    """Raise InfeedError if the shards of a split are not those of the manifest, or one has another size than there."""
    for name, split in manifest.splits.items():
        folder = names.split_dir(root, name)
        sizes = {file.path: file.size for file in files.list_files(folder)}
        for shard in split.shards:
            expected = shard.expected(root)
            check_size(expected, sizes.get(expected.path))
        if listed := listed_files(folder):
            check_listed(folder, listed)


def first_examples(root: str, manifest: Manifest, split: str, count: int) -> list[Example]:
    """Return up to `count` examples. Empty if the records are not tf.Examples."""
    found: list[bytes] = []
    for shard in manifest.split(split, root).shards:
        if len(found) < count:
            verify([shard.expected(root)])
            found += itertools.islice(records.read_records(files.join(root, shard.file)), count - len(found))
    try:
        return [decode_example(record) for record in found]
    except ValueError:
        return []
