"""tf.data datasets of TFRecord files in stores that TensorFlow cannot open. pyarrow reads the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.record_blocks import read_blocks

if TYPE_CHECKING:
    import tensorflow as tf

_UNKNOWN = -1


def stored_blocks(path: Any, start: Any = 0, stop: Any = _UNKNOWN, records: Any = _UNKNOWN) -> tf.data.Dataset:
    """Return records `start` to `stop - 1` of a file in blocks of any length, string [block], with verified checksums.

    The dataset calls Python, so only this process can compute it. All arguments may be tensors: `stop` is -1 for the
    end of the file. `records`, the expected number of records, is -1 if unknown.
    """
    import tensorflow as tf

    arguments = (path, start, stop, records)
    return tf.data.Dataset.from_generator(_blocks, args=arguments, output_signature=tf.TensorSpec([None], tf.string))


def _blocks(path: bytes, start: int, stop: int, records: int) -> Iterator[Any]:
    where, found = path.decode(), 0
    for block in read_blocks(where, int(start), None if stop == _UNKNOWN else int(stop)):
        found += len(block)
        yield np.array(block.payloads(np.arange(len(block))), object)
    if records not in (_UNKNOWN, found):
        what = f"the file holds {found:,} records, expected {records:,}"
        raise InfeedError(what, where=where, do="write the dataset again, with its manifest")
