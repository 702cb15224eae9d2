"""What every declared feature is: data that says what it has to know of the training rows, and how it is computed.

A feature's way through a batch, the same in the analysis, in training and in serving:

    raw tensor -> FlatColumn -> steps of `clean` -> `prepare` -> `apply` -> `shape` -> output
                                             -> `analysed`, in the analysis: what `needs` count

This module needs neither TFX nor TensorFlow, so that a configuration can be checked before anything heavy starts;
methods that compute are given tensors, and import TensorFlow themselves.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, NamedTuple

from infeed.components.checks import check_choices, require
from infeed.components.transform.analyses import Analysis

Values = Literal["one", "all", "by_position"]


class FlatColumn(NamedTuple):
    """The values of a column in a batch of rows, one after the other.

    Attributes:
      name: of the raw column, for errors.
      values: [n] int64, float32 or string; 0 or "" where `present` is False.
      present: bool [n]; False where a value is missing: there is none, or it is NaN or infinite.
      splits: int64 [batch + 1], where the values of each row begin and end; None: one value a row, and n is batch.
      keys: string [n], the key of each value; None of a feature without a key.
    """

    name: str
    values: Any
    present: Any
    splits: Any = None
    keys: Any = None


class Tables:
    """Lookup tables of a graph, made while it is traced.

    Args:
      folder: for vocabulary files, until the graph is saved.
    """

    def __init__(self, folder: str) -> None:
        self.assets: dict[str, str] = {}  # name -> name of its file
        self.held: list[Any] = []  # by the module that is saved
        self._folder = folder

    def vocabulary(self, name: str, words: Sequence[bytes], tokens: Any) -> Any:
        """int64 like `tokens`: the place of each in `words`, else -1. The words become the asset called `name`.

        `TFTransformOutput.vocabulary_by_name(name)` lists them. They are unique and hold no line break.
        """
        import tensorflow as tf

        if name not in self.assets:
            self.assets[name] = self._file_name(name)
        path = os.path.join(self._folder, self.assets[name])
        with open(path, "wb") as file:
            file.write(b"\n".join(words) + b"\n")
        whole_line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        return self._look(lambda: tf.lookup.TextFileInitializer(path, tf.string, whole_line, tf.int64, number), tokens)

    def places(self, keys: Sequence[bytes], of: Any) -> Any:
        """int64 like the strings `of`: the place of each in `keys`, else -1; kept within the graph."""
        import tensorflow as tf

        if not keys:
            return tf.fill(tf.shape(of), tf.constant(-1, tf.int64))
        return self._look(lambda: tf.lookup.KeyValueTensorInitializer(keys, range(len(keys)), tf.string, tf.int64), of)

    def _look(self, content: Callable[[], Any], tokens: Any) -> Any:
        import tensorflow as tf

        with tf.init_scope():  # else each call of the graph would fill the table again
            table = tf.lookup.StaticHashTable(content(), -1)
        self.held.append(table)
        return table.lookup(tokens)

    def _file_name(self, name: str) -> str:
        """Any column's name may be that of a vocabulary, and a file's name may not be any."""
        stem = file = re.sub(r"\W+", "_", name)
        number = 2
        while file in self.assets.values():
            file, number = f"{stem}_{number}", number + 1
        return file


class Step:
    """What both features and the steps of `clean` say of themselves.

    Attributes:
      kind: its name in YAML and JSON.
      needs: the analyses of the training rows that it has to know, each a class in `analyses.py`.
      makes_lists: whether rows hold lists after it, whatever they held before.
    """

    kind: str
    needs: tuple[type[Analysis], ...] = ()
    makes_lists: bool = False

    def __str__(self) -> str:
        """`ZScore(column='age')`: what was said of it, without what it would be anyway."""
        fields = [one for one in dataclasses.fields(self) if one.repr]  # type: ignore[arg-type]
        told = [one for one in fields if getattr(self, one.name) != one.default]
        words = (f"{one.name}={getattr(self, one.name)!r}" for one in sorted(told, key=lambda one: bool(one.kw_only)))
        return f"{type(self).__name__}({', '.join(words)})"

    @property
    def takes(self) -> tuple[str, ...]:
        """The types of a column that it can be made of: "int", "float" and "bytes", as a tf.Example has them."""
        return "int", "float"


class Clean(Step):
    """A step that comes before a feature: a column in, the same column out with other values. See `clean.py`."""

    def gives(self, type_: str) -> str:
        """The type of what it makes of a column of this type."""
        return type_

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        """The column with other values.

        Args:
          found: the analyses that it needs, of the column as it comes.
        """
        raise NotImplementedError


class Feature(Step):
    """Columns in, one transformed feature out.

    Attributes:
      column: the raw column.
      output: name of the transformed feature; None: the column's own.
      key: column of one value a row; constants are then those of the rows with the same key.
      clean: steps that come first.
      values: "one" value a row; lists, and the constants are those of "all" values, or of the values "by_position".
    """

    column: str
    output: str | None
    key: str | None = None
    clean: tuple[Any, ...] = ()
    values: Values = "one"
    length: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        for column in self.columns:
            require(isinstance(column, str) and column, self, "column", "give it as the name of a column")
        is_name = self.output is None or (isinstance(self.output, str) and self.output)
        require(is_name, self, "output", "give it as a name, or None")

    @property
    def output_name(self) -> str:
        """Name of the transformed feature: `output`, or the column's own name."""
        return self.output or self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns whose values it takes; the key is none of them."""
        return (self.column,)

    @property
    def inputs(self) -> tuple[str, ...]:
        """All raw columns that it depends on."""
        return (*self.columns, self.key) if self.key else self.columns

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of what it reads beside the rows: other contents make another feature."""
        return ()

    @property
    def stream(self) -> Hashable:
        """Equal for features whose analyses see the same values, which are then made once."""
        methods = (type(self).prepare is Feature.prepare, type(self).analysed is Feature.analysed)
        return (self.inputs, self.steps, self.values) if all(methods) else self

    @property
    def steps(self) -> tuple[Any, ...]:
        """What is done to its columns first: `clean`, and what the feature adds to that."""
        return self.clean

    @property
    def analyses_raw(self) -> bool:
        """Whether its analyses are those of a raw column as it is, which the dataset's own statistics answer."""
        return self.stream == ((self.column,), (), self.values) and self.values != "by_position"

    def prepare(self, columns: Sequence[FlatColumn]) -> FlatColumn:
        """What is made of `columns`, cleaned, before constants are needed: crosses, tokens."""
        return columns[0]

    def analysed(self, column: FlatColumn) -> FlatColumn:
        """What of the prepared column the analyses count."""
        return column

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        """[n, ...]: what becomes of each value of the prepared column.

        Args:
          found: the analyses that it needs, in their order; of a feature with keys each is a `ByKey`.
          tables: make lookups.

        Raises:
          InfeedError: nothing can be computed from what was found.
        """
        raise NotImplementedError

    def shape(self, column: FlatColumn, result: Any) -> Any:
        """The output: [batch, 1] of one value a row; of lists ragged [batch, None], or [batch, length]."""
        import tensorflow as tf

        if column.splits is None:
            return result[:, tf.newaxis] if result.shape.rank == 1 else result
        ragged = tf.RaggedTensor.from_row_splits(result, column.splits, validate=False)
        if self.length is None:
            return ragged
        return ragged.to_tensor(shape=[None, self.length, *result.shape[1:]])

    def domain(self, found: Sequence[Any]) -> tuple[int, int] | None:
        """The least and the greatest index of an output of indices, which the transformed schema tells."""
        return None


def as_strings(column: FlatColumn) -> Any:
    """string [n]: values as a vocabulary has them, "" where one is missing.

    Always strings: TensorFlow shares tables by the name of the op, and one with integer keys that is still alive from
    another trace in this process would make the next with string keys fail.
    """
    import tensorflow as tf

    if column.values.dtype == tf.string:
        return column.values
    return tf.where(column.present, tf.strings.as_string(column.values), "")


def is_finite(value: object) -> bool:
    """Whether it is a number, neither NaN nor infinite; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
