"""Batches that the user's own code gives: what an input function is given and returns, and generators as datasets.

The feed reads Examples. Who has a reader already, such as a Python generator, a tf.data pipeline or a data service,
names a function that returns its batches; they go the same way from there on.

TensorFlow is imported where it is used: the process in which `from_process` runs a generator imports this module, and
should start quickly.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.feed.options import WorkerContext

if TYPE_CHECKING:
    import tensorflow as tf

Batches: TypeAlias = "tf.data.Dataset | Callable[[int], tf.data.Dataset]"

_END = "end of the generator"


@dataclass(frozen=True)
class InputSpec:
    """What an input function is given.

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
    workers: WorkerContext
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
        import tensorflow as tf

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
    import tensorflow as tf

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


def items_of(function: str, arguments: Mapping[str, Any]) -> Iterator[Any]:
    """What `function(**arguments)` gives, made in another process, which ends when the iterator is closed.

    The pipe between the two holds 64 KiB on Linux: the generator waits where nobody takes what it gives.

    Args:
      function: `package.module:function` or `path/file.py:function`.
      arguments: they, and what the function gives, go through the pipe, so they have to be values that can be pickled.

    Raises:
      InfeedError: the generator failed, or its process was killed.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process that runs TensorFlow may hang
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_all, args=(function, arguments, sender), daemon=True)
    process.start()
    sender.close()  # the other process has the only one now: when that ends, so does the pipe
    try:
        while (item := receiver.recv())[0] != _END:
            yield item[1]
    except EOFError:
        process.join()
        raise InfeedError(
            f"the generator's process ended with exit code {process.exitcode}",
            where=function,
            do="see its traceback above; a negative code is a signal, and -9 often means that memory ran out",
        ) from None
    finally:
        process.kill()
        process.join()


def _send_all(function: str, arguments: Mapping[str, Any], sender: Any) -> None:
    for item in user_code.load(function, "input_fn")(**arguments):
        sender.send(("item", item))
    sender.send((_END, None))
