"""Transformed rows, batch by batch, on their way to files and statistics: a file for each file of raw ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from infeed.components.dataset import files, names
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.transform.columns import Raw

PREFIX = "transformed_examples"  # of the names of files, as TFX has it
_GZIP_LEVEL = 1  # a sixteenth of the time of zlib's 6, for hardly more bytes
_ITEMS = {tf.float32: pa.float32(), tf.int64: pa.int64(), tf.string: pa.large_binary()}

Transformed = Callable[[str], Iterable[pa.RecordBatch]]  # path of a file of raw rows -> a column for each feature
See = Callable[[pa.RecordBatch], None]
Encode = Callable[[pa.RecordBatch], pa.Array]  # a tf.Example for each row


def materialise(
    paths: Sequence[str],
    transformed: Transformed,
    folder: str | None,
    see: See | None,
    encode: Encode = encode_examples,
) -> None:
    """Goes through the transformed rows of `paths`, in their order, where they are to be written or seen.

    Args:
      folder: of the split, for `transformed_examples-00000-of-00012.gz` and so on; None: write nothing.
      see: is shown each batch on the way.
      encode: where there are lists of lists, which `encode_examples` does not take.
    """
    if folder is None and see is None:
        return
    for number, path in enumerate(paths):
        batches = _shown(transformed(path), see)
        if folder is None:
            for _ in batches:
                pass
        else:
            shard = files.join(folder, names.shard_name(number, len(paths), gzip=True, prefix=PREFIX))
            write_records(shard, (frame_records(encode(one)) for one in batches), gzip_level=_GZIP_LEVEL)


def _shown(batches: Iterable[pa.RecordBatch], see: See | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if see:
            see(batch)
        yield batch


def arrow_of(features: Mapping[str, Raw]) -> pa.RecordBatch:
    """Transformed features as Arrow columns: lists, but where each row has a single value."""
    return pa.RecordBatch.from_pydict({name: _column(tensor) for name, tensor in features.items()})


def _column(tensor: Raw) -> pa.Array:
    if isinstance(tensor, tf.RaggedTensor):
        items = tensor.flat_values
        return _lists(items, tensor.row_splits.numpy() * int(np.prod(items.shape[1:], dtype=np.int64)))
    width = int(np.prod(tensor.shape[1:], dtype=np.int64))
    if width == 1:
        return _items(tensor)
    return _lists(tensor, np.arange(tensor.shape[0] + 1, dtype=np.int64) * width)


def _lists(items: tf.Tensor, offsets: Any) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), _items(items))


def _items(tensor: tf.Tensor) -> pa.Array:
    return pa.array(tensor.numpy().reshape(-1), _ITEMS[tensor.dtype])
