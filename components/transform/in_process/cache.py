"""TransformCache artifact: encoded accumulators of the analyzers of each span, in the format of tft on Beam.

    SPAN/MANIFEST                  key of an analyzer -> number of its files, pickled
    SPAN/3-00000-of-00001.gz       its accumulators, one per record

TFX's own Transform can read caches written here, and vice versa.
"""

from __future__ import annotations

import io
import itertools
import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from infeed.components.dataset import files, names, records

Entries = Mapping[bytes, Sequence[str]]  # key of an analyzer -> its files
Encoded = Mapping[bytes, Iterable[bytes]]  # key of an analyzer -> its accumulators
_MANIFEST = "MANIFEST"
_BYTES = ("_codecs", "encode")  # the only function that pickles of protocol 0 call, to create bytes
_CHUNK = 1 << 16  # maximum number of elements that are Python objects at a time
_log = logging.getLogger(__name__)


def find(folder: str, datasets: Iterable[Any]) -> dict[Any, Entries]:
    """Return the entries of a cache folder for some datasets, by DatasetKey."""
    found: dict[Any, Entries] = {}
    for dataset in datasets:
        span = files.join(folder, dataset.key)
        numbers = _manifest(span)
        if numbers:
            found[dataset] = {
                key: [file.path for file in files.glob(span, f"{number}-*-of-*")] for key, number in numbers.items()
            }
    return found


def read(paths: Iterable[str]) -> Iterator[bytes]:
    return itertools.chain.from_iterable(map(records.read_records, paths))


def write(folder: str, kept: Mapping[Any, Encoded]) -> None:
    """Add new entries to a cache, and keep its earlier entries."""
    for dataset, entries in kept.items():
        span = files.join(folder, dataset.key)
        numbers = dict(_manifest(span))
        for number, (key, accumulators) in enumerate(entries.items(), max(numbers.values(), default=-1) + 1):
            path = files.join(span, names.shard_name(0, 1, gzip=True, prefix=str(number)))
            records.write_records(path, framed(accumulators), gzip_level=1)
            numbers[key] = number
        # The manifest comes last, so that an interrupted write adds no entry. tft reads protocol 0.
        files.write_bytes(files.join(span, _MANIFEST), pickle.dumps(numbers, protocol=0))


def framed(payloads: Iterable[bytes]) -> Iterator[pa.LargeBinaryArray]:
    """Yield payloads as records of a file, many at a time."""
    return (records.frame_records(pa.array(some, pa.large_binary())) for some in chunks(payloads))


def chunks(some: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield lists of elements, short enough to be Python objects."""
    remaining = iter(some)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        yield chunk


def _manifest(span: str) -> Mapping[bytes, int]:
    path = files.join(span, _MANIFEST)
    if not files.exists(path):
        return {}
    content = files.read_bytes(path)
    try:
        numbers = _Plain(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError) as error:
        _log.warning("the analyzer cache in %s is damaged, so the span is analyzed again: %s", span, error)
        return {}
    return numbers if isinstance(numbers, dict) else {}


class _Plain(pickle.Unpickler):
    """Unpickler that creates dicts, numbers and bytes, and calls nothing else that a pickle may name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != _BYTES:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)
