"""Input functions: batches from user code, and Python generators as datasets.

The feed reads Examples. An input function replaces this reader by a Python generator, a tf.data pipeline or a data
service.

Functions import TensorFlow on demand, because the process of `from_process` imports this module and should start
quickly.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import WorkerContext

if TYPE_CHECKING:
    import tensorflow as tf

Batches: TypeAlias = "tf.data.Dataset | Callable[[int], tf.data.Dataset]"

_END = "end of the generator"


@dataclass(frozen=True)
class InputSpec:
    """Argument of an input function.

    Attributes:
      files: TFX file patterns of the split's Examples.
      transform_graph: path of the TransformGraph artifact.
      training: True for training, False for evaluation.
      batch_size: examples in a batch of this worker, which is its part of the global batch.
      workers: this worker, and the number of workers. Workers should return distinct examples.
      seed: seed for random operations.
      hparams: the user's hyperparameters, as passed to the model function.
      signature: TypeSpecs of the model's input: ({name: [batch, ...]}, label [batch]). With several outputs,
          the label is {output: [batch, ...]}.
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
    """Result of an input function. A plain dataset is short for `Input(dataset)`.

    Attributes:
      batches: dataset of (features, label) or (features, label, weight), [batch, ...] each. Training repeats the
          dataset. Or a function that maps a step number to endless batches from that step on.
      steps_per_epoch: global batches per training epoch. None uses the cardinality of the dataset.
      repeatable: whether each pass gives the same batches in the same order. If True, a resumed training reads and
          skips used batches. If False, it restarts at the first batch.
      close: function to call when training ends or fails.
    """

    batches: Batches
    steps_per_epoch: int | None = None
    repeatable: bool = True
    close: Callable[[], None] = field(default=lambda: None)

    def dataset(self, start_step: int = 0) -> tf.data.Dataset:
        """Return endless training batches from `start_step` on."""
        import tensorflow as tf

        if not isinstance(self.batches, tf.data.Dataset):
            return self.batches(start_step)
        endless = self.batches.repeat()
        return endless.skip(start_step) if self.repeatable else endless


def from_generator(batches: Callable[[], Iterable[Any]], signature: Any, *, ahead: int = 8) -> tf.data.Dataset:
    """Return the batches of a Python generator as a dataset, with a queue that a thread fills.

    Args:
      batches: function that returns whole batches. Each pass over the data calls it once.
      signature: TypeSpecs of a batch, for example `InputSpec.signature`.
      ahead: maximum number of batches in the queue.
    """
    import tensorflow as tf

    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(ahead)


def from_process(
    function: str, signature: Any, *, ahead: int = 8, arguments: Mapping[str, Any] | None = None
) -> tf.data.Dataset:
    """Return batches from a generator in a separate process, so that its Python code does not slow down training.

    Args:
      function: `package.module:function` or `path/file.py:function`. `function(**arguments)` yields whole batches of
        NumPy arrays.
      signature: TypeSpecs of a batch.
      ahead: maximum number of batches in the queue. The pipe holds up to 64 KiB more.
      arguments: plain values.

    Raises:
      InfeedError: the function does not exist. If the generator fails later, or its process is killed, TensorFlow's
        error contains the InfeedError of `items_of`.
    """
    user_code.resolve(function, "input_fn")
    return from_generator(lambda: items_of(function, arguments or {}), signature, ahead=ahead)


def items_of(function: str, arguments: Mapping[str, Any]) -> Iterator[Any]:
    """Iterate over `function(**arguments)` in another process, which ends when the iterator is closed.

    The pipe between the processes holds 64 KiB on Linux. The generator waits while the pipe is full. Arguments and
    items are pickled. Raises InfeedError if the generator failed, or its process was killed.
    """
    context = multiprocessing.get_context("spawn")  # a process that runs TensorFlow may hang after a fork
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_all, args=(function, arguments, sender), daemon=True)
    process.start()
    sender.close()  # only the other process holds the sender now, so the pipe ends with that process
    try:
        while (item := receiver.recv())[0] != _END:
            yield item[1]
    except EOFError:
        process.join()
        what = f"the generator's process exited with code {process.exitcode}"
        do = "see its traceback above. A negative code is a signal: -9 often means out of memory"
        raise InfeedError(what, where=function, do=do) from None
    finally:
        process.kill()
        process.join()


def _send_all(function: str, arguments: Mapping[str, Any], sender: Any) -> None:
    for item in user_code.load(function, "input_fn")(**arguments):
        sender.send(("item", item))
    sender.send((_END, None))
