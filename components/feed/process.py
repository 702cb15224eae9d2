"""A Python generator in a process of its own. Neither process needs TensorFlow for it, so that one starts quickly."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from typing import Any

from infeed.components import user_code
from infeed.components.errors import InfeedError

_END = "end of the generator"


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
            do="See its traceback above; a negative code is a signal, and -9 often means that memory ran out.",
        ) from None
    finally:
        process.kill()
        process.join()


def _send_all(function: str, arguments: Mapping[str, Any], sender: Any) -> None:
    for item in user_code.load(function, "input_fn")(**arguments):
        sender.send(("item", item))
    sender.send((_END, None))
