"""Transformed examples: the graph applied to whole batches, encoded by columns, a file for each file of raw ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from infeed.components.dataset import files
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.transform.columns import Raw
from infeed.components.transform.rows import Rows

_GZIP_LEVEL = 1
_ITEMS = {tf.float32: pa.float32(), tf.int64: pa.int64(), tf.string: pa.large_binary()}


Transform = Callable[[Any], Mapping[str, Raw]]  # a batch of all raw features -> transformed features
See = Callable[[pa.RecordBatch], None]


def materialise(
    paths: Sequence[str], spec: Mapping[str, Any], transform: Transform, folder: str, see: See | None = None
) -> None:
    """Writes the transformed rows of `paths`, in their order, as `transformed_examples-00000-of-00012.gz` and so on.

    Args:
      spec: how raw rows are parsed.
      folder: of the split.
      see: is shown each batch on the way.
    """
    for number, path in enumerate(paths):
        name = f"transformed_examples-{number:05d}-of-{len(paths):05d}.gz"
        framed = _framed(transformed([path], spec, transform), see)
        write_records(files.join(folder, name), framed, gzip_level=_GZIP_LEVEL)


def transformed(paths: Sequence[str], spec: Mapping[str, Any], transform: Transform) -> Iterator[pa.RecordBatch]:
    """The transformed rows, a column for each feature."""
    for batch in Rows(paths, spec).mapped(lambda raw: dict(transform(dict(raw)))):
        yield pa.RecordBatch.from_pydict({name: arrow_of(tensor) for name, tensor in batch.items()})


def _framed(batches: Iterable[pa.RecordBatch], see: See | None) -> Iterator[pa.LargeBinaryArray]:
    for batch in batches:
        if see:
            see(batch)
        yield frame_records(encode_examples(batch))


def arrow_of(tensor: Raw) -> pa.Array:
    """A transformed feature as an Arrow column of as many rows: lists, but where each row has a single value."""
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
