"""A user's NumPy function on the batches of `infeed.load`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.feed.user_maps import SEED_MASK, SEED_USES, checked_dict, rows_of, takes_seed
from infeed.components.load.options import whole_number
from infeed.components.load.order import BatchOrder, fold_in

_WHERE = "infeed.load(...).map"


@dataclass(frozen=True)
class BatchMap:
    """Function on batches, whether it takes a seed, and the number of threads that call it."""

    function: Callable[..., Any]
    seeded: bool
    threads: int = 1

    @classmethod
    def of(cls, function: str | Callable[..., Any], threads: int = 1) -> BatchMap:
        """Import a function if it is given by name.

        Raises InfeedError if the function does not exist, or `threads` is not a positive integer.
        """
        whole_number(threads, 1, f"{_WHERE}, threads")
        loaded = user_code.load(function, _WHERE) if isinstance(function, str) else function
        own = loaded.__wrapped__ if isinstance(function, str) else loaded  # type: ignore[attr-defined]
        return cls(own, takes_seed(own), threads)

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
        made = checked_dict(given, where)
        for name, value in made.items():
            if (found := rows_of({name: value})) != rows:
                what = f"feature {name!r} has {found} rows, but the batch has {rows}"
                raise InfeedError(what, where=where, do="return one row for each row of the batch")
        return made


def seed_of(order: BatchOrder, step: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Derive the seed of this worker's batch, int64 [2], as the feed does for `map_batches`."""
    key, _ = fold_in((order.batch.seed, SEED_USES["map_batches"]), 0)
    return np.array([key & SEED_MASK, step * order.batch.workers.count + order.batch.workers.index], np.int64)
