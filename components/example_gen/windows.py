"""Ingest of a window of spans: each span once, then one dataset of all.

CACHE/SPAN-KEY/    the Examples of one span; the key changes with its files, the options and the version of this package

The dataset of a window has the shards of its spans under new names. Its column statistics are merged from those of the
spans, so that only the rows of new spans are read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import cache, files, names
from infeed.components.dataset.manifest import Balanced, Column, Manifest, Rejected, Source, Split
from infeed.components.dataset.options import IngestOptions, Spans
from infeed.components.dataset.splits import Buckets
from infeed.components.dataset.statistics.table_statistics import add, key_of, tables_of
from infeed.components.example_gen.ingest import clear
from infeed.components.example_gen.local import replacing, writing_to

_COPIES = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpanWindow:
    """A window of spans below `input_base`, and how its spans are ingested."""

    spans: Spans  # to read, with the folder that keeps their Examples
    input_base: str
    settings: Mapping[str, Any]  # everything else that determines the Examples; see `settings_of`

    def write(self, target: str, ingest: Callable[[str, str], object]) -> int:
        """Write the dataset of the window to `target`, and return the number of its latest span.

        `ingest` writes the files that match a pattern (first argument) into a folder (second argument). Raises
        InfeedError if there is no span, or the columns of two spans do not fit together.
        """
        roots = []
        for number, pattern in self.spans.window(self.input_base).items():
            source = Source.of("", self.input_base, files.glob(self.input_base, pattern))
            state = [source.fingerprint, metadata.version("tfx-infeed"), self.settings]
            key = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:16]
            roots.append(root := files.join(files.absolute(self.spans.cache), f"{number}-{key}"))
            _ingest_once(number, pattern, root, ingest)
            if files.is_local(root):
                cache.touch(Path(root))
        merge(roots, target)
        if files.is_local(self.spans.cache):
            cache.remove_old(Path(files.absolute(self.spans.cache)))
        return number


def _ingest_once(number: int, pattern: str, root: str, ingest: Callable[[str, str], object]) -> None:
    """Ingest a span, unless it was ingested before. If another process ingests it now, wait for that process."""
    manifest = files.join(root, names.MANIFEST)
    if not files.exists(manifest):
        with writing_to(root, wait=True):
            # The process that held the lock may have written the span.
            if not files.exists(manifest):
                _log.info("span %d is ingested into %s", number, root)
                with replacing(root, overwrite=True) as folder:
                    ingest(pattern, folder)
                return
    _log.info("span %d was ingested before, into %s", number, root)


def settings_of(
    format: str, source: Mapping[str, Any], options: IngestOptions, buckets: Buckets | None, fingerprint: str | None
) -> dict[str, Any]:
    """Return what determines the Examples of a span except its files, the same for ExampleGens and `infeed ingest`.

    Args:
      source: options of the format as JSON types, with their defaults.
      options: options of the ingest. The location of the spans is ignored.
      fingerprint: digest of the user's code and other inputs. None if there are none.
    """
    plain = schema.to_plain(replace(options, spans=None))
    shares = buckets and schema.to_plain(buckets)
    return {"format": format, "source": source, "options": plain, "buckets": shares, "fingerprint": fingerprint}


def merge(roots: Sequence[str], target: str) -> Manifest:
    """Write one dataset with the records of several, which have the same splits.

    On a local disk, the shards are hard links where possible. A column of different types raises InfeedError.
    """
    manifests = [Manifest.read(root) for root in roots]
    parts = list(zip(roots, manifests, strict=True))
    columns = _merge_columns(parts)
    clear(target)
    splits = {name: _merge_shards(name, parts, target) for name in manifests[0].splits}
    for name, split in splits.items():
        # Statistics of some spans alone would look like those of all. Without the file, later steps count the records.
        if all(files.exists(names.statistics_file(root, name)) for root in roots):
            tables = tables_of([(root, name) for root in roots])
            add(tables).write(names.statistics_file(target, name), key_of(split))
    sources = [one.source for one in manifests]
    fingerprint = hashlib.sha256("\n".join(one.fingerprint for one in sources).encode()).hexdigest()[:32]
    rejects = [files.join(root, one.rejected.file) for root, one in parts if one.rejected.file]
    if rejects:
        files.write_bytes(files.join(target, names.REJECTS), b"".join(map(files.read_bytes, rejects)))
    rejected = sum(one.rejected.rows for one in manifests)
    count, size = sum(one.files for one in sources), sum(one.bytes for one in sources)
    merged = replace(
        manifests[-1],
        source=Source(sources[-1].kind, fingerprint, count, size),
        schema=columns,
        splits=splits,
        rejected=Rejected(rejected, names.REJECTS if rejects else None),
        filtered=sum(one.filtered for one in manifests),
        balanced=sum((one.balanced for one in manifests), Balanced()),
        warnings=tuple(dict.fromkeys(warning for one in manifests for warning in one.warnings)),
        rows_read=sum(one.rows_read for one in manifests),
    )
    merged.write(target)  # last, because a folder with a manifest is complete
    return merged


def _merge_shards(name: str, parts: Sequence[tuple[str, Manifest]], target: str) -> Split:
    sources = [(root, shard) for root, manifest in parts for shard in manifest.splits[name].shards]
    gzip = any(shard.file.endswith(names.GZIP_SUFFIX) for _, shard in sources)
    folder = names.split_folder(name)
    shards = tuple(
        replace(shard, file=files.join(folder, names.shard_name(number, len(sources), gzip)))
        for number, (_, shard) in enumerate(sources)
    )
    old = [files.join(root, shard.file) for root, shard in sources]
    new = [files.join(target, shard.file) for shard in shards]
    with ThreadPoolExecutor(_COPIES) as pool:
        list(pool.map(_link, old, new))
    return Split.of(shards, f"those of {len(parts)} spans" if len(parts) > 1 else parts[0][1].splits[name].reason)


def _link(source: str, target: str) -> None:
    if "://" not in source + target:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with suppress(OSError):  # the target is on another disk, or the disk has no hard links
            os.link(source, target)
            return
    files.copy(source, target)


def _merge_columns(parts: Sequence[tuple[str, Manifest]]) -> tuple[Column, ...]:
    """Count a column that a span does not have as null in all of its rows."""
    merged: dict[str, Column] = {}
    before = 0
    for root, manifest in parts:
        records = sum(split.records for split in manifest.splits.values())
        here = {column.name: column for column in manifest.schema}
        for name in dict.fromkeys((*merged, *here)):
            one = merged.get(name) or replace(here[name], nulls=before)
            other = here.get(name) or replace(one, nulls=records)
            if one.type != other.type:
                what = f"column {name!r} is {other.type} in this span, and {one.type} in earlier ones"
                do = "give the column one type: source_options: {types: {COLUMN: TYPE}}"
                raise InfeedError(what, where=root, do=do)
            shape = one.shape if one.shape == other.shape else None
            merged[name] = Column(name, one.type, shape, one.nulls + other.nulls)
        before += records
    return tuple(merged.values())
