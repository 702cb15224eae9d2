"""TFRecord files -> the columns of some records at a time, decoded on all cores, in the order of the records.

NumPy and Arrow let other threads run while they work on a block, so threads are enough; they share the blocks' memory.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.decode import decode_example, is_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import varint
from infeed.components.dataset.record_blocks import PADDING, RecordBlock, read_blocks
from infeed.components.errors import InfeedError
from infeed.components.feed.capacity import Machine

REMEDY = "write tf.Examples, with one type for each feature"
_MOST_THREADS = 8  # one thread reads and writes for all of them: more would wait for it
_WORD = 8  # bytes that are compared at once; no head of a tf.Example is longer
_ONES = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)


class DecodedBlock(NamedTuple):
    """Some neighbouring records of a file.

    Attributes:
      file: number of the file.
      first: number of the first record in its file.
      records: how many.
      columns: lists, [records], by the name of the feature.
    """

    file: int
    first: int
    records: int
    columns: dict[str, pa.Array]


def decoded_blocks(paths: Sequence[str], threads: int | None = None) -> Iterator[DecodedBlock]:
    """All records of the files, in their order; a block for each thread, and one more, is in memory at a time.

    Args:
      paths: TFRecord files.
      threads: how many decode; None for one a core.

    Raises:
      InfeedError: a file is corrupt, a record is no tf.Example, or a feature has two types; with file and record.
    """
    count = threads or min(Machine.here().cpus, _MOST_THREADS)
    return _in_order(_blocks(paths), lambda block: _decoded(paths, *block), count)


def _blocks(paths: Sequence[str]) -> Iterator[tuple[int, int, RecordBlock]]:
    for number, path in enumerate(paths):
        first = 0
        for block in read_blocks(path):
            yield number, first, block
            first += len(block)


def _in_order(blocks: Iterator[Any], decode: Callable[[Any], DecodedBlock], threads: int) -> Iterator[DecodedBlock]:
    """What `decode` makes of each; the first error is that of the first block, as if one came after the other."""
    failed: InfeedError | None = None
    waiting: deque[Future[DecodedBlock]] = deque()
    pool = ThreadPoolExecutor(threads, "infeed-decode")
    try:
        while True:
            try:
                block = next(blocks, None)
            except InfeedError as error:
                failed, block = error, None
            if block is None:
                break
            waiting.append(pool.submit(decode, block))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
    if failed:
        raise failed


def _decoded(paths: Sequence[str], file: int, first: int, block: RecordBlock) -> DecodedBlock:
    try:
        _check_examples(block)
        return DecodedBlock(file, first, len(block), decode_columns(block))
    except ValueError as error:
        number, what = _culprit(block.payloads(np.arange(len(block))), str(error))
        raise InfeedError(what, where=f"{paths[file]}, record {first + number}", do=REMEDY) from error


def _check_examples(block: RecordBlock) -> None:
    """Raises ValueError for a record that has other fields than an Example, as a SequenceExample has."""
    # One field that ends where the record does: whatever else is valid is rare.
    lengths, which = np.unique(block.stops - block.starts, return_inverse=True)
    heads = [_head(length) for length in lengths.tolist()]
    wanted = np.array([int.from_bytes(head, "little") for head in heads], np.uint64)
    masks = _ONES[[len(head) for head in heads]]
    words: npt.NDArray[np.uint64] = np.ndarray((len(block.data) - len(PADDING) + 1,), "<u8", block.data, strides=(1,))
    which = which.reshape(-1)
    others = np.flatnonzero((words[block.starts] & masks[which]) != wanted[which])
    if not all(is_example(record, sequence=False) for record in block.payloads(others)):
        raise ValueError("not a serialized tf.Example: it has other fields")


@functools.lru_cache(maxsize=1 << 16)
def _head(length: int) -> bytes:
    """How a tf.Example of so many bytes begins: the tag of its one field, and that field's length."""
    heads = (b"\n" + varint(length - size) for size in range(2, min(length, 7) + 1))
    return next((head for size, head in enumerate(heads, 2) if len(head) == size), b"")


def _culprit(block: list[bytes], what: str) -> tuple[int, str]:
    """The number of the first record that is at fault, and what is wrong with it."""
    kinds: dict[str, Any] = {}
    for number, record in enumerate(block):
        try:
            found = decode_example(record)
        except ValueError as error:
            return number, str(error)
        if not is_example(record, sequence=False):
            return number, "not a serialized tf.Example: it has other fields"
        for name, feature in found.features.items():
            if feature.type and kinds.setdefault(name, feature.type) != feature.type:
                return number, f"feature {name!r} is {feature.type}, and {kinds[name]} in the records before"
    return 0, what
