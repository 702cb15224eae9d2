"""The one way to a dataset's column statistics, whoever wrote it: beside its manifest, else from a cache, else read."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from infeed.components.dataset import files, names
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.dataset.reading import manifest_of
from infeed.components.dataset.record_blocks import RecordBlock, read_blocks
from infeed.components.dataset.records import read_records
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import Gatherer, TableStatistics, add
from infeed.components.errors import InfeedError

CACHE_DIR = "~/.cache/tfx-infeed"
_log = logging.getLogger(__name__)


def statistics_of(
    root: str, split: str, columns: Iterable[str] | None = None, cache_dir: str = CACHE_DIR
) -> dict[str, ColumnStatistics]:
    """What is known of the columns of one split, by name.

    A dataset that carries no statistics, such as one that somebody else wrote, is read once, on all cores; what was
    found of each shard is kept in `cache_dir`, by the shard's checksum, and never written into the dataset.

    Args:
      root: folder of the dataset: any TFRecords of tf.Examples in Split-* folders
      columns: names of those that are wanted; None for all
      cache_dir: where statistics and counts of datasets without them are kept

    Raises:
      InfeedError: no such split or column, a file that is damaged, or records that are no tf.Examples.
    """
    cache = str(Path(cache_dir).expanduser())
    splits = manifest_of(root, cache).splits
    if split not in splits:
        raise InfeedError(f"there is no split {split!r}", where=root, do=f"choose one of {', '.join(splits)}")
    found = _stored(root, split, splits[split]) or _read(root, splits[split], cache)
    wanted = list(found.columns if columns is None else columns)
    if strangers := [name for name in wanted if name not in found.columns]:
        do = f"choose of {', '.join(map(repr, found.columns))}"
        raise InfeedError(f"there is no column {strangers[0]!r}", where=names.split_dir(root, split), do=do)
    return {name: found.columns[name] for name in wanted}


def stored_statistics(root: str, split: str) -> dict[str, ColumnStatistics] | None:
    """What the writer of a dataset left of one split, by column; None where it carries no statistics."""
    if not files.exists(names.statistics_file(root, split)):
        return None
    found = _stored(root, split, manifest_of(root).splits[split])
    return dict(found.columns) if found else None


def names_without_values(root: str, split: str, cache_dir: str = CACHE_DIR) -> list[str]:
    """Features that the split's first record names, and gives neither values nor a type.

    So ExampleGens write a column that holds nothing in all of the data: every record has its name.
    """
    for shard in manifest_of(root, str(Path(cache_dir).expanduser())).splits[split].shards:
        for record in read_records(files.join(root, shard.file)):
            return [name for name, feature in decode_example(record).features.items() if feature.type is None]
    return []


def key_of(split: Split) -> str:
    """Another one for every split of other records."""
    lines = [f"{shard.file}\t{shard.records}\t{shard.bytes}\t{shard.crc32c}" for shard in split.shards]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _stored(root: str, split: str, shards: Split) -> TableStatistics | None:
    return TableStatistics.read(names.statistics_file(root, split), key_of(shards))


def _read(root: str, split: Split, cache: str) -> TableStatistics:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        parts = list(threads.map(partial(_statistics_of_shard, root=root, cache=cache), split.shards))
    try:
        return add(parts)
    except ValueError as error:
        raise InfeedError(str(error), where=root, do="write all shards with one type for each feature") from error


def _statistics_of_shard(shard: Shard, root: str, cache: str) -> TableStatistics:
    key = f"{shard.crc32c}-{shard.bytes}-{shard.records}"
    found = kept_statistics(key, cache)
    if found is None:
        found = _read_shard(files.join(root, shard.file)).collapse()
        keep_statistics(found, key, cache)
    return found


def kept_statistics(key: str, cache_dir: str) -> TableStatistics | None:
    """What was kept of the rows that are known by this key; None for nothing, or for a file that is damaged."""
    try:
        return TableStatistics.read(_kept(key, cache_dir), key)
    except InfeedError as error:
        _log.warning("statistics that were kept are damaged, so the rows are read again: %s", error)
        return None


def keep_statistics(found: TableStatistics, key: str, cache_dir: str) -> None:
    """Keeps them, if the folder can be written."""
    with suppress(OSError, InfeedError):
        found.write(_kept(key, cache_dir), key)


def _kept(key: str, cache_dir: str) -> str:
    return files.join(cache_dir, f"statistics-{key}.json")


def _read_shard(path: str) -> TableStatistics:
    try:
        gatherer = Gatherer()
        for block in read_blocks(path):
            gatherer.add(len(block), _cells(block))
        return gatherer.statistics()
    except ValueError as error:
        raise InfeedError(str(error), where=path, do="write tf.Examples, with one type for each feature") from error


def _cells(block: RecordBlock) -> dict[str, Cells]:
    columns = decode_columns(block).items()
    return {name: cells for name, column in columns if (cells := Cells.of(column)) is not None}
