"""Warm start of a training from the weights of an earlier model.

A vocabulary lists its words by frequency, so the same index may be another word in a later run, and the vocabulary may
grow. Rows of an embedding are therefore matched by word. Known words keep their vectors, and new words start with
random ones.

The model defines the layout of its tables. `_tables` determines the rows: it passes single indices, and the gradient
shows which rows they touch. The model function with the earlier vocabulary sizes shows the earlier layout.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.seams import tensorflow as tensorflow_seam
from infeed.components.trainer.graph import Graph
from infeed.components.trainer.model import ModelSpec
from infeed.components.trainer.model_inputs import ModelInputs
from infeed.components.trainer.options import OtherBaseModel

_WEIGHT = tensorflow_seam.name_in_checkpoint("weights/{}")  # name of a weight in an export, by number

_ANEW = "or start from random weights with train: {other_base_model: ignore}"

_log = logging.getLogger(__name__)

Build = Callable[[ModelSpec], tuple[keras.Model, ModelInputs]]
_Tables = dict[int, dict[str, int]]  # number of the weight -> row of index 0 by feature


@dataclass(frozen=True)
class Start:
    """Initial value of a weight: rows of `value` to copy to rows of the weight. None copies the whole value."""

    value: Any
    rows: tuple[Sequence[int], Sequence[int]] | None = None


def starts_of(exported: str, graph: Graph, spec: ModelSpec, build: Build) -> list[Start]:
    """Return the initial value of each weight, in order. Names are not used, because they differ between runs.

    Raise InfeedError if another Trainer exported the model, or its classes or embedding layouts differ.
    """
    values = weights_of(exported)
    changed = {}
    for name in (*graph.labels, *spec.vocabulary_sizes):
        before, now = _words(os.path.join(exported, "assets"), graph, name), graph.words(name)
        if before is not None and before != now:
            changed[name] = before, now
    if other := [name for name in graph.labels if name in changed]:
        raise _mismatch(f"the classes of the label {other[0]!r} differ from those of the base model", exported)
    if not changed:
        return [Start(value) for value in values]
    # Only a model shows which rows of its weights belong to the words of a feature, so build a model per vocabulary.
    sizes = {name: len(before) for name, (before, _) in changed.items()}
    earlier = dataclasses.replace(spec, vocabulary_sizes={**spec.vocabulary_sizes, **sizes})
    old, new = (_tables(*build(one), one, graph) for one in (earlier, spec))
    return _by_word(values, old, new, changed, graph, exported)


def assign(model: keras.Model, starts: Sequence[Start], exported: str) -> None:
    """Set the weights of the model. If shapes differ, raise InfeedError without changing any weight."""
    here = [tuple(variable.shape) for variable in model.variables]
    there = [
        tuple(start.value.shape) if start.rows is None else (shape[:1] + tuple(start.value.shape[1:]))
        for start, shape in zip(starts, here, strict=False)
    ]
    if len(starts) != len(here) or there != here:
        place = next((i for i, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), None)
        what = f"the base model has {len(starts)} weights, but the model has {len(here)}"
        if place is not None:
            what += f"; the first that differs is {list(there[place])} there, "
            what += f"{list(here[place])} here ({model.variables[place].path})"
        raise _mismatch(what, exported)
    for variable, start in zip(model.variables, starts, strict=True):
        value = start.value
        if start.rows is not None:
            value = variable.numpy()
            value[start.rows[0]] = start.value[start.rows[1]]
        variable.assign(value)


@contextmanager
def may_start_anew(otherwise: OtherBaseModel) -> Iterator[None]:
    """Log the InfeedError of an unfit base model instead of raising it, if `otherwise` is ignore."""
    try:
        yield
    except InfeedError as error:
        if otherwise == "error":
            raise
        _log.warning("training starts from random weights: %s (%s)", error.what, error.where)


def weights_of(exported: str) -> list[Any]:
    """Return the weights of an exported model, in order. Raise InfeedError if another Trainer exported it."""
    checkpoint = os.path.join(exported, "variables", "variables")
    there = tf.io.gfile.exists(f"{checkpoint}.index")
    held = {name for name, _ in tf.train.list_variables(checkpoint)} if there else set()
    names = [name for name in map(_WEIGHT.format, range(len(held))) if name in held]
    if not names:
        what = "the base model was not exported by this Trainer, so its weights have no names"
        do = "train from it in your own run_fn, where it is fn_args.base_model"
        raise InfeedError(what, where=exported, do=do)
    return [tf.train.load_variable(checkpoint, name) for name in names]


def _words(assets: str, graph: Graph, name: str) -> tuple[bytes, ...] | None:
    """Return the words of a feature in the base model. None if it has no such vocabulary."""
    file = graph.vocabulary_file(name)
    path = os.path.join(assets, os.path.basename(file)) if file else ""
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as opened:
        content: bytes = opened.read()
    return tuple(content.removesuffix(b"\n").split(b"\n"))


def _tables(model: keras.Model, inputs: ModelInputs, spec: ModelSpec, graph: Graph) -> _Tables:
    """Return the first row of each feature whose words map to consecutive rows.

    Row 0 of the batch has index 0 for all features. For each feature, two more rows have its first and last word.
    """
    sizes = {name: size for name, size in spec.vocabulary_sizes.items() if size and name not in inputs.unused}
    batch = {
        name: np.zeros((1 + 2 * len(sizes), *(n or 1 for n in tensor.shape)), tensor.dtype.as_numpy_dtype)
        for name, tensor in spec.inputs.items()
    }
    for number, (name, size) in enumerate(sizes.items()):
        batch[name][1 + 2 * number], batch[name][2 + 2 * number] = graph.first_word, graph.first_word + size - 1
    with tf.GradientTape() as tape:
        given = inputs({name: tf.constant(value) for name, value in batch.items()})
        outputs = tf.add_n([tf.reduce_sum(one) for one in tf.nest.flatten(model(given, training=False))])
    trained = {id(variable): number for number, variable in enumerate(model.variables)}
    gradients = tape.gradient(outputs, [variable.value for variable in model.trainable_variables])
    found: _Tables = {}
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        if isinstance(gradient, tf.IndexedSlices) and (rows := _rows(gradient, sizes, graph.first_word)):
            found[trained[id(variable)]] = rows
    return found


def _rows(gradient: tf.IndexedSlices, sizes: Mapping[str, int], first_word: int) -> dict[str, int]:
    touched = gradient.indices.numpy()
    if len(touched) % (1 + 2 * len(sizes)):  # several look-ups in one table
        return {}
    touched = touched.reshape(1 + 2 * len(sizes), -1)
    found = {}
    for number, (name, size) in enumerate(sizes.items()):
        first, last = (set(touched[row][touched[row] != touched[0]]) for row in (1 + 2 * number, 2 + 2 * number))
        if len(first) == len(last) == 1 and (low := first.pop()) + size - 1 == last.pop():
            found[name] = int(low) - first_word
    return found


def _by_word(
    values: Sequence[Any],
    old: _Tables,
    new: _Tables,
    changed: Mapping[str, tuple[Sequence[bytes], Sequence[bytes]]],
    graph: Graph,
    exported: str,
) -> list[Start]:
    located = {name for rows in new.values() for name in rows}
    if lost := sorted(changed.keys() - located):
        what = f"the vocabulary of {lost[0]!r} has changed, but the model does not use it only for an embedding lookup"
        do = f"make {lost[0]!r} a Vocabulary feature with an embedding, in place of one_hot, or a Hash feature, {_ANEW}"
        raise InfeedError(what, where=exported, do=do)
    if {number: set(rows) for number, rows in old.items()} != {number: set(rows) for number, rows in new.items()}:
        raise _mismatch("the vocabularies have changed, and so have the features that share an embedding", exported)
    starts = []
    for number, value in enumerate(values):
        pairs = [
            (now + new[number][name], before + old[number][name])
            for name in new.get(number, ())
            for now, before in _same(*changed.get(name, (graph.words(name),) * 2), graph, name)
        ]
        rows = tuple(zip(*pairs, strict=True))
        starts.append(Start(value, ([*rows[0]], [*rows[1]]) if rows else None))
    return starts


def _same(before: Sequence[bytes], now: Sequence[bytes], graph: Graph, name: str) -> list[tuple[int, int]]:
    """Return the old and new indices with the same meaning: missing value, known word, or unseen word."""
    places = {word: graph.first_word + number for number, word in enumerate(before)}
    words = [(graph.first_word + number, places[word]) for number, word in enumerate(now) if word in places]
    ends = (graph.first_word + len(now), graph.first_word + len(before))
    unseen = [(ends[0] + number, ends[1] + number) for number in range(graph.unseen(name))]
    return [*((index, index) for index in range(graph.first_word)), *words, *unseen]


def _mismatch(what: str, exported: str) -> InfeedError:
    return InfeedError(what, where=exported, do=f"build the same model as before, {_ANEW}")
