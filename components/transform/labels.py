"""What the analysis must know of a label: its classes in a fixed order, and whether every training row has one.

`tft.vocabulary` orders by frequency, which would renumber the classes whenever the data changes. And a check in the
graph itself would also fail in serving, where the label is absent; in the analysis it sees the training rows alone.
"""

# No `from __future__ import annotations`: Beam reads the type hints at run time.

import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam

from infeed.components.errors import InfeedError
from infeed.components.transform.columns import Column

# What the file of classes holds until the analysis has run; tft reads it as a table, which may not be empty.
_NOT_YET = b"0"
_SPLIT = "the split that Transform analyses"


class Summary(NamedTuple):
    """What some rows say about a label."""

    rows_without: int
    values: frozenset[int | bytes]


def sorted_classes(column: Column, name: str, *, refuse_missing: bool) -> tf.Tensor:
    """Path of a text file of the training rows' distinct values, one a line: integers by number, strings by bytes.

    Args:
      column: int64 or string.
      name: key of the file in the transform graph, for `TFTransformOutput.vocabulary_by_name`.
      refuse_missing: end the analysis with an InfeedError where a training row has no value.
    """
    filename = re.sub(r"\W+", "_", name)  # the key may be any column's name, a file name may not
    tft.annotate_asset(name, filename)
    finish = partial(write_classes, column=column.name, filename=filename, refuse_missing=refuse_missing)
    return _analyze(column.only_present(), column.present, finish, tf.string, _NOT_YET)


def refuse_missing(column: Column) -> None:
    """Ends the analysis with an InfeedError where a training row has no value."""
    nothing = tf.zeros([0], tf.int64)
    _analyze(nothing, column.present, partial(check_complete, column=column.name), tf.int64, None)


def summarize(batch: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> Summary:
    """One batch: values [n] of the rows that have one, and presence [rows]."""
    values, present = batch
    return Summary(int(np.count_nonzero(~present)), frozenset(values.tolist()))


def merge(summaries: Iterable[Summary]) -> Summary:
    rows_without, values = 0, set[int | bytes]()
    for summary in summaries:
        rows_without += summary.rows_without
        values |= summary.values
    return Summary(rows_without, frozenset(values))


def check_complete(summary: Summary, folder: str, *, column: str) -> int:
    """The number of rows without a label, which is 0."""
    if summary.rows_without:
        raise InfeedError(
            f"column {column!r} has no label in {summary.rows_without} rows",
            where=_SPLIT,
            do='leave these rows out of the data, or set missing="mark" on the label and let the reader leave them out',
        )
    return 0


def write_classes(summary: Summary, folder: str, *, column: str, filename: str, refuse_missing: bool) -> bytes:
    """Writes one value a line in the order of the values and returns the path as bytes, as tft expects it."""
    if refuse_missing:
        check_complete(summary, folder, column=column)
    if not summary.values:
        raise InfeedError(
            f"column {column!r} holds no label at all",
            where=_SPLIT,
            do="check that this is the label's column, and that the split has rows",
        )
    lines = [_line(value, column) for value in sorted(summary.values)]
    path = os.path.join(folder, filename)
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(b"\n".join(lines) + b"\n")
    return os.fsencode(path)


def _line(value: int | bytes, column: str) -> bytes:
    if isinstance(value, int):
        return b"%d" % value
    if b"\n" in value or b"\r" in value:
        raise InfeedError(
            f"column {column!r} holds the label {value!r}, which has a line break",
            where=_SPLIT,
            do="name the classes without line breaks: they are kept one a line",
        )
    return value


def _analyze(
    values: tf.Tensor, present: tf.Tensor, finish: Callable[..., Any], dtype: tf.DType, file_before: bytes | None
) -> tf.Tensor:
    (result,) = tft.experimental.ptransform_analyzer(
        [values, present], _Analyze(finish), [dtype], [[]], None if file_before is None else [file_before]
    )
    return result


class _Analyze(tft_beam.experimental.PTransformAnalyzer):
    """Batches to one element, `finish(summary, folder for files)`."""

    def __init__(self, finish: Callable[[Summary, str], Any]) -> None:
        super().__init__()
        self._finish = finish

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return (
            batches
            | "Summarize" >> beam.Map(summarize)
            | "Merge" >> beam.CombineGlobally(merge)  # one Summary
            | "Finish" >> beam.Map(self._finish, self.base_temp_dir)
        )
