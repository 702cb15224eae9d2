"""The rows of TFRecord files in batches, parsed by a schema, as often as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.dataset import files
from infeed.components.dataset.records import read_records

MOST_ROWS = 4096  # of a batch
_BATCH_BYTES = 32 << 20  # of the records of a batch, going by the first record
_READ_BUFFER_BYTES = 8 << 20


@dataclass(frozen=True)
class Rows:
    """Rows of serialized tf.Examples.

    Attributes:
      paths: TFRecord files; `.gz` in the name means gzip.
      spec: how each is parsed.
    """

    paths: Sequence[str]
    spec: Mapping[str, Any]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Batches: name -> [batch, ...]."""
        return iter(self.mapped(dict))

    def mapped(self, function: Callable[[Mapping[str, Any]], Any]) -> tf.data.Dataset:
        """What `function` makes of each batch, in the order of the rows."""

        @tf.autograph.experimental.do_not_convert
        def parse(records: tf.Tensor) -> Any:
            return function(tf.io.parse_example(records, dict(self.spec)))

        return self._records().batch(self._batch).map(parse, tf.data.AUTOTUNE).prefetch(2)

    def only(self, columns: Sequence[str]) -> Rows:
        """The same rows, of which fewer columns are parsed."""
        return Rows(self.paths, {name: spec for name, spec in self.spec.items() if name in columns})

    def _records(self) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(list(self.paths)).flat_map(_records_of)

    @property
    def _batch(self) -> int:
        first = next((len(record) for path in self.paths for record in read_records(path)), 0)
        return max(1, min(MOST_ROWS, _BATCH_BYTES // max(1, first)))


def paths_of(roots: Sequence[str], splits: Sequence[str]) -> list[str]:
    """The files of some splits of one or several Examples, in their order."""
    folders = [files.join(root, f"Split-{split}") for root in roots for split in splits]
    return [file.path for folder in folders for file in files.list_files(folder) if not files.is_hidden(file.path)]


def _records_of(path: tf.Tensor) -> tf.data.Dataset:
    is_gzip = tf.strings.regex_full_match(path, r".*\.gz")
    return tf.data.TFRecordDataset(path, tf.where(is_gzip, "GZIP", ""), _READ_BUFFER_BYTES)
