"""Lookup tables of a transform graph."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class GraphTables:
    """The lookup tables of one graph: see `feature.Tables`.

    Args:
      folder: for vocabulary files, until the graph is saved.
    """

    def __init__(self, folder: str) -> None:
        self.assets: dict[str, str] = {}  # name -> name of its file
        self.held: list[Any] = []  # by the module that is saved
        self._folder = folder

    def vocabulary(self, name: str, words: Sequence[bytes], tokens: tf.Tensor) -> tf.Tensor:
        """int64 like `tokens`; the words become an asset."""
        if name not in self.assets:
            self.assets[name] = self._file_name(name)
        path = os.path.join(self._folder, self.assets[name])
        with open(path, "wb") as file:
            file.write(b"\n".join(words) + b"\n")
        whole_line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        return self._look(lambda: tf.lookup.TextFileInitializer(path, tf.string, whole_line, tf.int64, number), tokens)

    def places(self, keys: Sequence[bytes], of: tf.Tensor) -> tf.Tensor:
        """int64 like `of`; the keys become a constant of the graph."""
        if not keys:
            return tf.fill(tf.shape(of), tf.constant(-1, tf.int64))
        return self._look(lambda: tf.lookup.KeyValueTensorInitializer(keys, range(len(keys)), tf.string, tf.int64), of)

    def _look(self, content: Callable[[], Any], tokens: tf.Tensor) -> tf.Tensor:
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
