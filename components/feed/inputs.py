"""Batches from elsewhere: what an input function is told, what it returns, and generators as datasets.

The feed reads Examples. Who has a reader already, such as a Python generator, a tf.data pipeline or a data service,
names a function that returns its batches; they go the same way from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import tensorflow as tf

from infeed.components import user_code
from infeed.components.feed.options import Workers
from infeed.components.feed.process import items_of

Batches: TypeAlias = tf.data.Dataset | Callable[[int], tf.data.Dataset]


@dataclass(frozen=True)
class InputSpec:
    """What an input function is told.

    Attributes:
      files: file patterns of the split's Examples, as TFX gives them.
      transform_graph: path of the TransformGraph artifact.
      training: whether to train on the batches, or to evaluate.
      batch_size: examples in one batch of this worker: its part of the global batch.
      workers: which worker this is, and of how many; no two should give the same example.
      seed: for whatever is random.
      hparams: the user's own, as the model function gets them.
      signature: TypeSpecs of what the model is fed: ({name: [batch, ...]}, label [batch]).
    """

    files: tuple[str, ...]
    transform_graph: str
    training: bool
    batch_size: int
    workers: Workers
    seed: int
    hparams: Mapping[str, Any]
    signature: tuple[Any, ...]


@dataclass(frozen=True)
class Input:
    """What an input function may return; a dataset alone stands for `Input(dataset)`.

    Attributes:
      batches: (features, label) or (features, label, weight), [batch, ...] each; in training begun again whenever it
        ends. Or a function of a step's number that returns endless batches from that step on.
      steps_per_epoch: global batches in an epoch of training; None where the dataset knows its cardinality.
      repeatable: whether a dataset gives the same batches in the same order each time: a resumed training then passes
        over those that it has had, which costs reading them. Without, it goes on with whatever batch comes first.
      close: called when training has ended, however it did.
    """

    batches: Batches
    steps_per_epoch: int | None = None
    repeatable: bool = True
    close: Callable[[], None] = field(default=lambda: None)

    def dataset(self, start_step: int = 0) -> tf.data.Dataset:
        """Endless batches of training, the first one that of `start_step`."""
        if not isinstance(self.batches, tf.data.Dataset):
            return self.batches(start_step)
        endless = self.batches.repeat()
        return endless.skip(start_step) if self.repeatable else endless


def from_generator(batches: Callable[[], Iterable[Any]], signature: Any, *, ahead: int = 8) -> tf.data.Dataset:
    """The batches of a Python generator, through a queue that a thread keeps filled.

    Args:
      batches: gives whole batches; called anew for each pass over the data.
      signature: TypeSpecs of a batch, such as `InputSpec.signature`.
      ahead: batches in the queue, at most.
    """
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(ahead)


def from_process(
    function: str, signature: Any, *, ahead: int = 8, arguments: Mapping[str, Any] | None = None
) -> tf.data.Dataset:
    """As `from_generator`, with the generator in a process of its own: Python there does not slow the training down.

    Args:
      function: `package.module:function` or `path/file.py:function`, called as `function(**arguments)`; it gives whole
        batches of NumPy arrays.
      signature: TypeSpecs of a batch.
      ahead: batches that wait here, at most; beside them a pipe's worth waits on its way.
      arguments: plain values.

    Raises:
      InfeedError: there is no such function. If the generator fails later, or its process is killed, TensorFlow's error
        carries the InfeedError of `items_of`.
    """
    user_code.resolve(function, "input_fn")
    return from_generator(lambda: items_of(function, arguments or {}), signature, ahead=ahead)
