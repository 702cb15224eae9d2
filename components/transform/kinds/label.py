"""The label of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from infeed.components.base.checks import as_tuples
from infeed.components.base.errors import InfeedError
from infeed.components.transform.analyses import Analysis, Frequencies, Moments, as_word, is_word
from infeed.components.transform.feature import Feature, FlatColumn, Tables, Values, as_strings, tf
from infeed.components.transform.kinds.clean import AnyClean
from infeed.components.transform.kinds.encode import any_of_rows

Task = Literal["classification", "regression", "multilabel"]
Missing = Literal["error", "mark"]
_SPLIT = "the split that Transform analyzes"


@dataclass(frozen=True)
class Label(Feature):
    """Label of the model, [batch], under the column's name. A model may have several labels, or none.

    A missing label (also NaN, infinity and the empty string) becomes -1 or NaN. So does a class that no training row
    has. A transform cannot drop rows, so the reader must drop them before the loss. Serving has no label, and is not
    affected.

    Attributes:
      task: "classification" gives the int64 index of the class. A vocabulary asset with the column's name lists the
          classes in index order: strings in byte order, integers in ascending order. Floats such as 1.0 count as
          integers, because pandas writes them if a cell is empty. "regression" gives float32. "multilabel" expects
          lists of classes and gives float32 [batch, classes], with 1 for each class of the row.
      missing: "error" stops Transform if training rows have no label, and reports their number. "mark" accepts them.
    """

    column: str
    task: Task = "classification"
    missing: Missing = "error"
    output: ClassVar[None] = None  # type: ignore[misc]  # it keeps the column's name
    clean: tuple[AnyClean, ...] = field(default=(), kw_only=True)
    kind: Literal["label"] = field(default="label", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        as_tuples(self, "clean")
        super().__post_init__()

    @property
    def takes(self) -> tuple[str, ...]:
        return ("int", "float") if self.task == "regression" else ("int", "float", "bytes")

    @property
    def values(self) -> Values:  # type: ignore[override]
        return "all" if self.task == "multilabel" else "one"

    @property
    def needs(self) -> tuple[type[Analysis], ...]:  # type: ignore[override]
        return (Moments,) if self.task == "regression" else (Frequencies,)

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        without = found[0].missing + (found[0].counts.get(b"", 0) if isinstance(found[0], Frequencies) else 0)
        if without and self.missing == "error" and self.task != "multilabel":
            raise InfeedError(
                f"column {self.column!r} has no label in {without} rows",
                where=_SPLIT,
                do='remove these rows from the data, or set missing="mark" on the label and drop them in the reader',
            )
        if self.task == "regression":
            return tf.where(column.present, tf.cast(column.values, tf.float32), math.nan)
        classes, whole = self.classes(found[0]), column.present
        if column.values.dtype.is_floating:
            whole = tf.logical_and(whole, tf.equal(column.values, tf.floor(column.values)))
            column = column._replace(values=tf.cast(column.values, tf.int64))
        index = tables.vocabulary(self.output_name, classes, as_strings(column))
        index = tf.where(whole, index, -1)
        return index if self.task == "classification" else tf.one_hot(index, len(classes), dtype=tf.float32)

    def shape(self, column: FlatColumn, result: Any) -> Any:
        return any_of_rows(column, result) if self.task == "multilabel" else result

    def classes(self, found: Frequencies) -> list[bytes]:
        """Return the values of the training rows in index order."""
        given = sorted(value for value in found.counts if value != b"")
        for value in given:
            if isinstance(value, float) and not value.is_integer():
                what = f"column {self.column!r} has the label {value}, but a class cannot be a fraction"
                do = "write the classes as integers or words, or use task='regression'"
                raise InfeedError(what, where=_SPLIT, do=do)
        values = [as_word(value) for value in given]
        if not values:
            do = "check that this is the label column, and that the split has rows"
            raise InfeedError(f"column {self.column!r} has no labels", where=_SPLIT, do=do)
        for value in values:
            if not is_word(value):
                what = f"column {self.column!r} has the label {value!r}, which contains a line break"
                raise InfeedError(what, where=_SPLIT, do="name the classes without line breaks")
        return values
