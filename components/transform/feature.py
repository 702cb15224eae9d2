"""What every declared feature is: data that says what it has to know of the training rows, and how it is computed.

A feature's way through a batch, the same in the analysis, in training and in serving:

    raw tensor -> FlatColumn -> steps of `clean` -> `prepare` -> `apply` -> `shape` -> output
                                             -> `analyzed`, in the analysis: what `needs` count

This module needs neither TFX nor TensorFlow, so that a configuration can be checked before anything heavy starts;
methods that compute are given tensors, and import TensorFlow themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from infeed.components.checks import check_choices, require
from infeed.components.transform.analyses import Analysis
from infeed.components.unique_names import UniqueNames

Values = Literal["one", "all", "by_position"]
_SEPARATOR = b"\x1f"  # ends the number in front of a word, which has none itself
_LONGEST = 60  # characters of a vocabulary's name that its file keeps; each has up to 4 bytes


class FlatColumn(NamedTuple):
    """The values of a column in a batch of rows, one after the other.

    Attributes:
      name: of the raw column, for errors.
      values: [n] int64, float32 or string; 0 or "" where `present` is False. Of k columns together, [k, n].
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
        self.copied: list[str] = []  # paths of assets that no table of the graph reads
        self.held: list[Any] = []  # by the module that is saved
        self._folder = folder
        self._files = UniqueNames()

    def vocabulary(self, name: str, words: Sequence[bytes], tokens: Any) -> Any:
        """int64 like `tokens`: the place of each in `words`, else -1. The words become the asset called `name`.

        `TFTransformOutput.vocabulary_by_name(name)` lists them. They are unique and hold no line break.
        """
        return self._lines(self._write(name, words), tokens)

    def vocabularies(self, words: Mapping[str, Sequence[bytes]], tokens: Any) -> Any:
        """int64 [k, n] like `tokens`: `vocabulary` of k names, row by row, in one table of all their words."""
        import tensorflow as tf

        self.copied += [self._write(name, of_name) for name, of_name in words.items()]
        prefixes = [b"%d%s" % (row, _SEPARATOR) for row in range(len(words))]
        together = [prefix + word for prefix, of_name in zip(prefixes, words.values(), strict=True) for word in of_name]
        path = self._write_lines(self._file_name("vocabularies"), together)
        keys = tf.strings.join([tf.broadcast_to(tf.constant(prefixes)[:, tf.newaxis], tf.shape(tokens)), tokens])
        sizes = [len(of_name) for of_name in words.values()]
        first = tf.constant([0, *itertools.accumulate(sizes[:-1])], tf.int64)[:, tf.newaxis]
        return tf.maximum(self._lines(path, keys) - first, -1)

    def _write(self, name: str, words: Sequence[bytes]) -> str:
        if name not in self.assets:
            self.assets[name] = self._file_name(name)
        return self._write_lines(self.assets[name], words)

    def _write_lines(self, file_name: str, lines: Sequence[bytes]) -> str:
        path = os.path.join(self._folder, file_name)
        with open(path, "wb") as file:
            file.write(b"\n".join(lines) + b"\n")
        return path

    def _lines(self, path: str, tokens: Any) -> Any:
        """int64 like `tokens`: the number of the line that each is in the file, else -1."""
        import tensorflow as tf

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
        """Any column's name may be that of a vocabulary, and a file's name may not be any: at most 255 bytes."""
        return self._files.take(re.sub(r"\W+", "_", name[:_LONGEST]))


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
      shared: options that features of one kind must have in common to be computed together; None: each is computed
        alone.
    """

    column: str
    output: str | None
    key: str | None = None
    clean: tuple[Any, ...] = ()
    values: Values = "one"
    length: int | None = None
    shared: ClassVar[tuple[str, ...] | None] = None

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
        methods = (type(self).prepare is Feature.prepare, type(self).analyzed is Feature.analyzed)
        return (self.inputs, self.steps, self.values) if all(methods) else self

    @property
    def steps(self) -> tuple[Any, ...]:
        """What is done to its columns first: `clean`, and what the feature adds to that."""
        return self.clean

    @property
    def analyses_raw(self) -> bool:
        """Whether its analyses are those of a raw column as it is, which the dataset's own statistics answer."""
        return self.stream == ((self.column,), (), self.values) and self.values != "by_position"

    @property
    def alike(self) -> Hashable | None:
        """Equal for features that the same operations compute together; None if the feature is computed alone."""
        if self.shared is None or self.key or self.values != "one":
            return None
        if any(step.needs or step.makes_lists for step in self.steps):
            return None
        return type(self), tuple(getattr(self, name) for name in self.shared), self.steps

    def prepare(self, columns: Sequence[FlatColumn]) -> FlatColumn:
        """What is made of `columns`, cleaned, before constants are needed: crosses, tokens."""
        return columns[0]

    def analyzed(self, column: FlatColumn) -> FlatColumn:
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

    def apply_together(
        self, features: Sequence[Any], column: FlatColumn, found: Sequence[Sequence[Any]], tables: Tables
    ) -> Sequence[Any]:
        """The outputs [n, ...] of k features that are `alike`, this one among them.

        Args:
          column: of all of them: values and present are [k, n].
          found: what `apply` is given for each feature.
        """
        return each_output(self.apply(column, (), tables))  # without constants, the same operations do

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


def each_output(result: Any) -> Sequence[Any]:
    """The outputs of k features, [n, 1] or [n, ...], from what was computed for all, [k, n] or [k, n, ...]."""
    import tensorflow as tf

    outputs: Sequence[Any] = tf.unstack(result[..., tf.newaxis] if result.shape.rank == 2 else result)
    return outputs


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
