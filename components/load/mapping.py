"""A user's NumPy function on the batches of `infeed.load`."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.feed.user_maps import SEED_MASK, SEED_USES, as_array, checked_dict, rows_of, takes_seed
from infeed.components.load.options import whole_number
from infeed.components.load.order import BatchOrder
from infeed.components.load.shuffle import fold_in

_WHERE = "infeed.load(...).map"


@dataclass(frozen=True)
class BatchMap:
    """Function on batches, whether it takes a seed, and the number of threads or processes that call it."""

    function: Callable[..., Any]
    seeded: bool
    threads: int = 1
    processes: int = 0
    imported: str = ""  # the name by which another process imports the function

    @classmethod
    def of(cls, function: str | Callable[..., Any], threads: int = 1, processes: int = 0) -> BatchMap:
        """Import a function if it is given by name.

        Raises InfeedError if the function does not exist, or `threads` or `processes` is not a suitable integer.
        """
        whole_number(threads, 1, f"{_WHERE}, threads")
        whole_number(processes, 0, f"{_WHERE}, processes")
        if threads > 1 and processes:
            what = f"threads is {threads}, and processes is {processes}"
            raise InfeedError(what, where=_WHERE, do="set only one: processes if the function holds the GIL")
        loaded = user_code.load(function, _WHERE) if isinstance(function, str) else function
        own = loaded.__wrapped__ if isinstance(function, str) else loaded  # type: ignore[attr-defined]
        return cls(own, takes_seed(own), threads, processes, function if isinstance(function, str) else "")

    def importable(self) -> BatchMap:
        """Return this map with the name of its function. Raises InfeedError if other processes cannot import it."""
        return replace(self, imported=self.imported or user_code.name_of(self.function, _WHERE))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.imported:
            # The digest differs after a change of the file, so that `call_pickled` imports it again.
            digest = user_code.digest(self.imported, _WHERE)
            return _imported, (self.imported, self.threads, self.processes, digest)
        return BatchMap, (self.function, self.seeded, self.threads)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, batch: dict[str, Any], order: BatchOrder, step: int) -> dict[str, Any]:
        """Call the function on the batch of a step.

        Raises InfeedError if the function failed, or returned no features or a different number of rows.
        """
        where, rows = f"{_WHERE}, step {step}", rows_of(batch)
        named = {"seed": seed_of(order, step)} if self.seeded else {}
        try:
            with user_code.translate_errors():
                given = self.function(batch, **named)
        except InfeedError as error:
            raise InfeedError(error.what, where=f"{error.where}, {where}", do=error.do) from error.__cause__
        return {name: _rows(name, value, rows, where) for name, value in checked_dict(given, where).items()}


def _rows(name: str, value: Any, rows: int, where: str) -> Any:
    """Return a feature of a function as an array or Ragged. Raises InfeedError if it is none, or has other rows."""
    try:
        made = as_array(value)
    except (TypeError, ValueError) as error:
        do = "return an array, or Ragged for rows of different lengths"
        raise InfeedError(f"feature {name!r} is no array: {error}", where=where, do=do) from error
    if isinstance(made, np.ndarray) and not made.ndim:
        what = f"feature {name!r} is {type(value).__name__}, one value for all rows"
    elif (found := rows_of({name: made})) != rows:
        what = f"feature {name!r} has {found} rows, but the batch has {rows}"
    else:
        return made
    raise InfeedError(what, where=where, do="return one row for each row of the batch")


def _imported(name: str, threads: int, processes: int, _digest: str) -> BatchMap:
    return BatchMap.of(name, threads, processes)


def seed_of(order: BatchOrder, step: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Derive the seed of this worker's batch, int64 [2], as the feed does for `map_batches`."""
    key, _ = fold_in((order.batch.seed, SEED_USES["map_batches"]), 0)
    return np.array([key & SEED_MASK, step * order.batch.workers.count + order.batch.workers.index], np.int64)


def call_pickled(pickled: bytes, *arguments: Any) -> Any:
    """Call a pickled function in this process. It is unpickled once."""
    return _unpickled(pickled)(*arguments)


@functools.lru_cache(maxsize=4)
def _unpickled(pickled: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(pickled)
    return function
