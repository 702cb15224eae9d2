"""The classes of a label as an analyzer: all distinct values of the training rows, sorted, one a line.

`tft.vocabulary` orders by frequency, which would renumber the classes whenever the data changes.
"""

# No `from __future__ import annotations`: Beam reads the type hints at run time.

import os
import re
from collections.abc import Iterable

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam


# What the file holds until the analysis has run; tft reads it as a table, which may not be empty.
_UNKNOWN_YET = b"0"


def sorted_classes(values: tf.Tensor, name: str) -> tf.Tensor:
    """Path of a text file of the distinct `values`: integers by number, strings by their bytes.

    Args:
      values: [n] int64 or string; analysed over all training rows. The empty string is left out.
      name: key of the asset in the transform graph (`TFTransformOutput.vocabulary_by_name(name)`).
    """
    filename = re.sub(r"\W+", "_", name)  # the key may be any column name, a file name may not
    tft.annotate_asset(name, filename)
    (path,) = tft.experimental.ptransform_analyzer([values], WriteSortedClasses(filename), [tf.string], [[]], [_UNKNOWN_YET])
    return path


class WriteSortedClasses(tft_beam.experimental.PTransformAnalyzer):  # type: ignore[misc]
    """Batches of values, each a tuple of one array [n], to the path of one file with their sorted distinct values."""

    def __init__(self, filename: str) -> None:
        super().__init__()
        self._filename = filename

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        path = os.path.join(self.base_temp_dir, self._filename)
        return (
            batches
            | "DistinctOfBatch" >> beam.Map(lambda batch: distinct(batch[0]))  # set of int or bytes
            | "Distinct" >> beam.CombineGlobally(union)  # one set
            | "WriteSorted" >> beam.Map(write_sorted, path)
        )


def distinct(values: np.ndarray) -> set[int | bytes]:
    return set(values.tolist())


def union(sets: Iterable[set[int | bytes]]) -> set[int | bytes]:
    return set().union(*sets)


def write_sorted(values: set[int | bytes], path: str) -> bytes:
    """Writes one value a line and returns the path as bytes, as tft expects it."""
    lines = [value if isinstance(value, bytes) else b"%d" % value for value in sorted(values)]  # type: ignore[type-var]
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(b"".join(line + b"\n" for line in lines if line))
    return os.fsencode(path)
