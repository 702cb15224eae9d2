"""Base of declared features, which define analyses of the training rows and a computation.

A feature processes a batch identically in the analysis, in training and in serving:

    raw tensor -> FlatColumn -> steps of `clean` -> `prepare` -> `apply` -> `shape` -> output
                                             -> `analyzed`, input of the analyses in `needs`

This module imports neither TFX nor TensorFlow, so that a configuration can be checked quickly. Methods that compute
use TensorFlow through the name `tf` of this module.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from infeed.components.base import user_code, user_modules
from infeed.components.base.checks import check_fields, require
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import UniqueNames
from infeed.components.transform.analyses import Analysis, ByKey, is_word

Values = Literal["one", "all", "by_position"]
_SEPARATOR = b"\x1f"  # ends the number before a word, because numbers do not contain it
_FEW_KEYS = 1 << 16  # larger tables are files, because a graph is limited to 2 GB
_MOST_BYTES = 3 << 29  # maximum bytes of constants in a graph, with room for everything else
_LONGEST = 60  # maximum characters of a vocabulary's name in its file name. Each has up to 4 bytes


class _TensorFlow:
    """TensorFlow module, imported at first use."""

    def __getattr__(self, name: str) -> Any:
        import tensorflow

        return getattr(tensorflow, name)


tf: Any = _TensorFlow()
Tensor: TypeAlias = Any  # tf.Tensor


class FlatColumn(NamedTuple):
    """Concatenated values of a column in a batch of rows."""

    name: str  # name of the raw column, for errors
    values: Any  # [n] int64, float32 or string; 0 or "" where `present` is False. For k columns together, [k, n]
    present: Any  # bool [n]. False for missing values, including NaN and infinity
    splits: Any = None  # int64 [batch + 1], row splits of the values. None for one value per row: n is batch
    keys: Any = None  # string [n], the key of each value. None for a feature without a key

    @property
    def row_splits(self) -> Any:
        """Return `splits`, also for one value per row."""
        return tf.range(tf.size(self.values, tf.int64) + 1) if self.splits is None else self.splits


class Tables:
    """Lookup tables of a graph, created while it is traced.

    Args:
      folder: folder for vocabulary files until the graph is saved.
      most_bytes: bytes of constants that the graph may hold.
    """

    def __init__(self, folder: str, most_bytes: int = _MOST_BYTES) -> None:
        self.assets: dict[str, str] = {}  # name -> name of its file
        self.copied: list[str] = []  # paths of assets that no table of the graph reads
        self.held: list[Any] = []  # objects that the saved module must hold
        self._folder = folder
        self._files = UniqueNames()
        self._bytes, self._most_bytes = 0, most_bytes  # bytes of constants in the graph

    def vocabulary(self, name: str, words: Sequence[bytes], tokens: Any) -> Any:
        """Look up tokens in `words`: int64 like `tokens`, the index of each word, or -1.

        The words become the asset `name`, which `TFTransformOutput.vocabulary_by_name(name)` lists. They are unique
        and have no line breaks.
        """
        return self._lines(self._write(name, words), tokens)

    def vocabularies(self, words: Mapping[str, Sequence[bytes]], tokens: Any) -> Any:
        """Look up tokens [k, n] in k vocabularies, row by row, in one table of all words: int64 [k, n]."""
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
        """Return int64 like `tokens`: the line number of each token in the file, or -1."""
        whole_line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        return self._look(lambda: tf.lookup.TextFileInitializer(path, tf.string, whole_line, tf.int64, number), tokens)

    def constants_by_key(self, found: ByKey[Any], constants: Callable[[Any], Sequence[float]], of: Any) -> Any:
        """Return the constants of each key in the strings `of`, float64 [n, k].

        Unknown keys use those of all values.
        """
        keys = found.keys
        numbers = np.fromiter(itertools.chain.from_iterable(map(constants, found.in_order)), np.float64)
        self._hold(numbers.nbytes)
        return tf.gather(tf.constant(numbers.reshape(len(keys) + 1, -1)), self.places(keys, of) + 1)

    def places(self, keys: Sequence[bytes], of: Any) -> Any:
        """Return int64 like the strings `of`: the index of each in `keys`, or -1.

        The table is part of the graph, or an asset if there are many keys.
        """
        if not keys:
            return tf.fill(tf.shape(of), tf.constant(-1, tf.int64))
        if len(keys) > _FEW_KEYS and all(map(is_word, keys)):
            return self._lines(self._write_lines(self._file_name("keys"), keys), of)
        self._hold(sum(map(len, keys)) + 8 * len(keys))
        numbers = np.arange(len(keys))
        return self._look(lambda: tf.lookup.KeyValueTensorInitializer(keys, numbers, tf.string, tf.int64), of)

    def _hold(self, size: int) -> None:
        """Count the bytes of a constant. Raise InfeedError if the graph becomes too large."""
        self._bytes += size
        if self._bytes > self._most_bytes:
            what = f"constants of keys and values take {self._bytes:,} bytes, more than {self._most_bytes:,}"
            raise InfeedError(what, where="the transform graph", do="use a key or a column with fewer distinct values")

    def _look(self, content: Callable[[], Any], tokens: Any) -> Any:
        with tf.init_scope():  # otherwise each call of the graph would fill the table again
            table = tf.lookup.StaticHashTable(content(), -1)
        self.held.append(table)
        return table.lookup(tokens)

    def _file_name(self, name: str) -> str:
        """Return a valid file name for a vocabulary, of at most 255 bytes."""
        return self._files.take(re.sub(r"\W+", "_", name[:_LONGEST]))


class Step:
    """The common interface of features and cleaning steps.

    Attributes:
      kind: name in YAML and JSON; empty for a class of the user.
      needs: required analyses of the training rows, classes of `analyses.py`.
      makes_lists: whether rows hold lists after the step.
    """

    kind: str = ""
    needs: tuple[type[Analysis], ...] = ()
    makes_lists: bool = False

    def __str__(self) -> str:
        """Return text such as `ZScore(column='age')`, without default options."""
        fields = [one for one in dataclasses.fields(self) if one.repr]  # type: ignore[arg-type]
        told = [one for one in fields if getattr(self, one.name) != one.default]
        words = (f"{one.name}={getattr(self, one.name)!r}" for one in sorted(told, key=lambda one: bool(one.kw_only)))
        return f"{type(self).__name__}({', '.join(words)})"

    @property
    def takes(self) -> tuple[str, ...]:
        """Return the supported column types: "int", "float" and "bytes", as in a tf.Example."""
        return "int", "float"


class Clean(Step):
    """Cleaning step before a feature: it maps a column to the same column with other values. See `clean.py`."""

    def gives(self, type_: str) -> str:
        """Return the output type for a column type."""
        return type_

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        """Return the column with other values.

        Args:
          found: required analyses of the input column.
        """
        raise NotImplementedError


class Feature(Step):
    """A transformed feature of one or several columns.

    Attributes:
      column: raw column.
      output: name of the transformed feature. None uses the column's name.
      key: column of one value a row. Constants are computed from rows with the same key.
      clean: cleaning steps to apply first.
      values: "one" value per row, lists with common constants ("all"), or lists with constants for each position
          ("by_position").
      length: number of values per row, if it is the same for all rows and not one.
      shared: options in which features of one kind must agree to be computed together. None computes each feature
          separately.
    """

    column: str
    output: str | None
    key: str | None = None
    clean: tuple[Any, ...] = ()
    values: Values = "one"
    length: int | None = None
    shared: ClassVar[tuple[str, ...] | None] = None

    def __post_init__(self) -> None:
        check_fields(self)
        for column in self.columns:
            require(isinstance(column, str) and column, self, "column", "use the name of a column")
        is_name = self.output is None or (isinstance(self.output, str) and self.output)
        require(is_name, self, "output", "use a name, or None")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a class of a user's file by the name that another process can load."""
        if not user_modules.is_of_project(type(self).__module__):
            return super().__reduce_ex__(protocol)
        options = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}  # type: ignore[arg-type]
        return _restored, (user_code.name_of(type(self)), options)

    @property
    def output_name(self) -> str:
        """Name of the transformed feature: `output`, or the column's name."""
        return self.output or self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the raw columns of values, without the key."""
        return (self.column,)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return all raw columns that the feature depends on."""
        return (*self.columns, self.key) if self.key else self.columns

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of files that the feature reads. Their content is part of the cache key."""
        return ()

    @property
    def stream(self) -> Hashable:
        """Return a key that is equal for features whose analyses have the same input values."""
        methods = (type(self).prepare is Feature.prepare, type(self).analyzed is Feature.analyzed)
        return (self.inputs, self.steps, self.values) if all(methods) else self

    @property
    def steps(self) -> tuple[Any, ...]:
        """Return the steps before the feature: `clean`, and the feature's own."""
        return self.clean

    @property
    def analyses_raw(self) -> bool:
        """Return whether the analyses use an unmodified raw column, so that statistics can provide them."""
        return self.stream == ((self.column,), (), self.values) and self.values != "by_position"

    @property
    def alike(self) -> Hashable | None:
        """Return a key that is equal for features that can be computed together. None if computed separately."""
        if self.shared is None or self.key or self.values != "one":
            return None
        if any(step.needs or step.makes_lists for step in self.steps):
            return None
        return type(self), tuple(getattr(self, name) for name in self.shared), self.steps

    def prepare(self, columns: Sequence[FlatColumn]) -> FlatColumn:
        """Combine the cleaned `columns` before constants are needed, as for crosses and tokens."""
        return columns[0]

    def analyzed(self, column: FlatColumn) -> FlatColumn:
        """Return the part of the prepared column that the analyses use."""
        return column

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        """Transform the prepared column: [n, ...].

        Args:
          found: the required analyses, in order. For a feature with a key, each is a `ByKey`.
          tables: creates lookup tables.

        Raises:
          InfeedError: the analyses make the feature impossible.
        """
        raise NotImplementedError

    def apply_together(self, features: Sequence[Any], column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        """Return the outputs [n, ...] of k features that are `alike`, including this one.

        Args:
          column: column of all features, with values and present [k, n].
          found: argument of `apply` for each feature.
        """
        # Without constants, the same operations work for all features.
        return each_output(self.apply(column, (), tables))

    def shape(self, column: FlatColumn, result: Any) -> Any:
        """Return the output: [batch, 1] for one value per row; for lists, ragged [batch, None] or [batch, length]."""
        if column.splits is None:
            return result[:, tf.newaxis] if result.shape.rank == 1 else result
        ragged = tf.RaggedTensor.from_row_splits(result, column.splits, validate=False)
        if self.length is None:
            return ragged
        return ragged.to_tensor(shape=[None, self.length, *result.shape[1:]])

    def domain(self, found: Sequence[Any]) -> tuple[int, int] | None:
        """Return the minimum and the maximum index of an index output, for the transformed schema."""
        return None


def _restored(kind: str, options: Mapping[str, Any]) -> Feature:
    return user_code.load_class(kind, "features", Feature)(**options)


def each_output(result: Any) -> Sequence[Any]:
    """Split the result for k features, [k, n] or [k, n, ...], into outputs [n, 1] or [n, ...]."""
    outputs: Sequence[Any] = tf.unstack(result[..., tf.newaxis] if result.shape.rank == 2 else result)
    return outputs


def as_strings(column: FlatColumn) -> Any:
    """Return values as vocabulary strings: string [n], "" for a missing value.

    Always strings, because TensorFlow shares tables by op name within a process. A live table with integer keys from
    another trace would make a table with string keys fail.
    """
    if column.values.dtype == tf.string:
        return column.values
    return tf.where(column.present, tf.strings.as_string(column.values), "")


def is_finite(value: object) -> bool:
    """Return whether a value is a finite number. Booleans do not count as numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
