"""Interface of engines, merge tree of results, and the engine that runs in this process.

Other programs may write the files of results. A key of the job signs each pickle, because pickles can run code.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import hmac
import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
S = TypeVar("S")
FAN_IN = 16  # results merged at a time


class Engine(abc.ABC):
    """Runs functions over items. A context manager that frees its workers on exit.

    Functions and items of engines other than `Here` must be picklable. Items are small, such as a path and a range of
    records. Data travels through files that every worker can access.

    Attributes:
      place: where the work is done, such as "on 4 processes".
    """

    place: str

    @abc.abstractmethod
    def map(self, function: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        """Yield `function(item)` for each item in order.

        Raises:
          InfeedError: the first error of a worker, or a worker was killed twice at one item.
        """

    def reduce(self, function: Callable[[A], B], items: Iterable[A], merge: Callable[[B, B], B], /) -> B:
        """Merge `function(item)` of all items as a tree of neighbors, in order.

        The tree is the same in every engine, so results are bit-identical even if `merge` rounds.

        Args:
          merge: merges two neighbors. May modify and return the first.

        Raises:
          ValueError: there are no items.
          InfeedError: see `map`.
        """
        tree = Tree(merge)
        for result in self.map(function, items):
            tree.add(result)
        return tree.result()

    def announce(self, passes: Sequence[Iterable[Any]], /) -> None:
        """Announce the items of consecutive calls of `reduce`, such as an analysis and its use.

        The engine may keep its workers between these calls. Results do not depend on it.
        """
        return None

    def __enter__(self) -> Engine:
        _open.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _open.remove(self)
        if not _open:  # an outer engine may still use the object
            _held.clear()


class Here(Engine):
    """Engine that runs in this process."""

    place = "in this process"

    def map(self, function: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        return iter(progress.Parts(map(function, items), items))


class Tree(Generic[B]):
    """Merges results as they arrive: FAN_IN neighbors into one, FAN_IN of these into one, and so on.

    Holds at most FAN_IN results of each level.
    """

    def __init__(self, merge: Callable[[B, B], B]) -> None:
        self._merge = merge
        self._levels: list[list[B]] = [[]]

    def add(self, result: B, level: int = 0) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(result)
        if len(self._levels[level]) == FAN_IN:
            self._merge_level(level)

    def result(self) -> B:
        level = 0
        # Incomplete levels merge from the bottom up, because a merge may add a result to the next level.
        while level < len(self._levels) - 1 or len(self._levels[level]) > 1:
            if self._levels[level]:
                self._merge_level(level)
            level += 1
        if not self._levels[level]:
            raise ValueError("there are no items to merge")
        return self._levels[level][0]

    def _merge_level(self, level: int) -> None:
        merged = functools.reduce(self._merge, self._levels[level])
        self._levels[level] = []
        self.add(merged, level + 1)


@dataclass(frozen=True)
class WithSetUp(Generic[S, A, B]):
    """Function of an item and of an object that each worker creates once, such as a loaded model.

    A worker holds one such object at a time.

    Attributes:
      function: (result of `set_up`, item) -> result.
      set_up: called in the worker before its first item.
    """

    function: Callable[[S, A], B]
    set_up: Callable[[], S]
    _key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, item: A) -> B:
        with _lock:  # Beam's workers have several threads
            if self._key not in _held:
                # Free the previous object first, because two models may not fit into memory.
                _held.clear()
                _held[self._key] = self.set_up()
            made = _held[self._key]
        return self.function(made, item)

    def after(self, function: Callable[[S, C], D]) -> WithSetUp[S, C, D]:
        """Return a function of the same object. A process that has created the object reuses it."""
        return WithSetUp(function, self.set_up, self._key)


_open: list[Engine] = []  # engines of this process whose work is not done
_held: dict[str, Any] = {}  # result of `set_up` in this process
_lock = threading.Lock()


_SIGNATURE_BYTES = hashlib.sha256().digest_size


def dumps(key: bytes, value: Any) -> bytes:
    """Pickle a value, with its signature in front."""
    pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return hmac.digest(key, pickled, "sha256") + pickled


def loads(key: bytes, content: bytes, where: str) -> Any:
    """Unpickle the output of `dumps`. Raise InfeedError if the signature is wrong."""
    pickled = content[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, pickled, "sha256"), content[:_SIGNATURE_BYTES]):
        do = "prevent other programs from writing there, and run again"
        raise InfeedError("an intermediate result was modified", where=where, do=do)
    return pickle.loads(pickled)
