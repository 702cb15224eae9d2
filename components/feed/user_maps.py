"""User functions on features, called by the stages `map_examples` and `map_batches`.

TensorFlow functions become part of the graph. NumPy functions run in a few processes, which import the user's module
but not TensorFlow; maps of `infeed.load` use them as well. Batches pass through pipes. The seed of a call depends only
on the seed of the run, the option, and the number of the example or batch, so a resumed training repeats it.
"""

from __future__ import annotations

import functools
import inspect
import re
import signal
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError, infeed_error
from infeed.components.feed.options import MapFunction
from infeed.components.seams import process_pools
from infeed.components.seams import tensorflow as tensorflow_seam

if TYPE_CHECKING:
    from concurrent.futures import Future
    from concurrent.futures.process import ProcessPoolExecutor

    import tensorflow as tf

Ints = npt.NDArray[np.int64]
# Used in place of an epoch, so that no seed of the order is reused.
SEED_USES = {"map_examples": -2, "map_batches": -3}
SEED_MASK = (1 << 63) - 1  # NumPy's generators reject negative numbers


class Ragged(NamedTuple):
    """Concatenated values of rows of different lengths. Row i is `values[row_splits[i] : row_splits[i + 1]]`.

    In JAX and PyTorch, this NamedTuple is a pair of arrays. The values of nested lists are a Ragged.
    """

    values: Any
    row_splits: Any

    def row(self, number: int) -> Any:
        """Return the values of one row."""
        start, stop = self.row_splits[number], self.row_splits[number + 1]
        if not isinstance(self.values, Ragged):
            return self.values[start:stop]
        splits = self.values.row_splits[start : stop + 1]
        return Ragged(self.values.values[splits[0] : splits[-1]], splits - splits[0])


@dataclass(frozen=True)
class Target:
    """Function that a stage calls."""

    option: str  # `map_examples` or `map_batches`
    given: MapFunction  # the option's value
    digest: str  # digest of the user's files. A worker imports the function again after a change

    @classmethod
    def of(cls, option: str, given: MapFunction) -> Target:
        """Return the target of an option. Raises InfeedError if the function does not exist."""
        return cls(option, given, user_code.digest(given.name, option))

    @property
    def where(self) -> str:
        """Option and function, for errors."""
        return f"FeedOptions.{self.option}, {self.given.name}"


# Graphs of the functions, to explain failed operations. Weak, because TensorFlow logs errors about live graphs at exit.
_TRACED: weakref.WeakKeyDictionary[Any, Target] = weakref.WeakKeyDictionary()


def call_numpy(target: Target, features: Mapping[str, Any], seeds: Ints) -> dict[str, Any]:
    """Call a NumPy function in one of its processes, on features by name: arrays [batch, ...] or Ragged.

    `seeds` are int64 [2] for a batch, [batch, 2] for examples. Raises InfeedError if the function failed, or its
    process was killed.
    """
    with naming_broken_pool(target.where):
        processes = target.given.processes
        made: dict[str, Any] = result(processes, submit(processes, _call, target, features, seeds))
        return made


@functools.cache
def load(target: Target) -> tuple[Callable[..., Any], bool]:
    """Import the function. Return it, and whether it takes a seed."""
    function = user_code.load(target.given.name, target.option)
    own = getattr(function, "__wrapped__", function)
    return own, takes_seed(own)


def takes_seed(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter `seed`. Some built-in functions, such as `dict`, have no signature."""
    with suppress(ValueError):
        return "seed" in inspect.signature(function).parameters
    return False


def _call(target: Target, features: Mapping[str, Any], seeds: Ints) -> dict[str, Any]:
    """Call the function in this process, on a batch or on its examples one by one."""
    function, seeded = load(target)

    def call(some: Mapping[str, Any], seed: Ints) -> dict[str, Any]:
        made = function(dict(some), seed=seed) if seeded else function(dict(some))
        return checked_dict(made, target.where)

    with user_code.translate_errors(target.option):
        if target.option == "map_batches":
            made = call(features, seeds)
        else:
            rows = (
                {name: one.row(number) if isinstance(one, Ragged) else one[number] for name, one in features.items()}
                for number in range(rows_of(features))
            )
            made = _stacked([call(row, seed) for row, seed in zip(rows, seeds, strict=True)], features)
        return {name: as_array(value, features.get(name)) for name, value in made.items()}


def checked_dict(made: Any, where: str) -> dict[str, Any]:
    """Return the result of a user's function if it is a dict of features."""
    if not (isinstance(made, dict) and made and all(isinstance(name, str) for name in made)):
        raise InfeedError(f"the function returned {type(made).__name__}", where=where, do="return a dict of features")
    return made


def rows_of(features: Mapping[str, Any]) -> int:
    """Return the number of rows of a batch."""
    first = next(iter(features.values()))
    return len(first.row_splits) - 1 if isinstance(first, Ragged) else len(first)


def _stacked(rows: Sequence[dict[str, Any]], features: Mapping[str, Any]) -> dict[str, Any]:
    """Join the features of examples. Rows of different lengths become Ragged if they were before."""
    made = {}
    for name in rows[0]:
        values = [np.asarray(row[name]) for row in rows]
        if isinstance(features.get(name), Ragged):
            made[name] = Ragged(np.concatenate(values), np.cumsum([0, *map(len, values)], dtype=np.int64))
        elif len(shapes := {value.shape for value in values}) == 1:
            made[name] = np.stack(values)
        else:
            what = f"feature {name!r} has different shapes: {sorted(shapes)}"
            raise InfeedError(what, where="map_examples", do="return the same shape for every example")
    return made


def as_array(value: Any, before: Any = None) -> Any:
    """Convert a result to an array, and text to bytes.

    Floats get the precision of the feature `before`, because NumPy computes in float64.
    """
    if isinstance(value, Ragged):
        return Ragged(as_array(value.values, getattr(before, "values", None)), np.asarray(value.row_splits, np.int64))
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return (np.char.encode(array) if array.dtype.kind == "U" else array).astype(object)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    kind = getattr(before, "dtype", None)
    return array.astype(kind, copy=False) if kind is not None and array.dtype.kind == kind.kind == "f" else array


class _Like(NamedTuple):
    """Type and shape of a feature in every batch."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None  # shape of a row. None for rows of different lengths

    @classmethod
    def of(cls, value: Any) -> _Like:
        return cls(value.values.dtype, None) if isinstance(value, Ragged) else cls(value.dtype, value.shape[1:])

    def __str__(self) -> str:
        return f"{self.dtype} {'of any length' if self.shape is None else list(self.shape)}"


class NumpyMap:
    """NumPy function in a dataset. Every batch has the types and shapes that the function returns for a sample.

    `sample` are features of a real batch, tensors [batch, ...]. Raises InfeedError if a feature has no NumPy
    equivalent, or the function fails.
    """

    def __init__(self, target: Target, sample: Mapping[str, Any]) -> None:
        import tensorflow as tf

        for name, spec in _spec(sample).items():
            if not (isinstance(spec, tf.TensorSpec) or getattr(spec, "ragged_rank", 0) == 1):
                what = f"feature {name!r} has no NumPy equivalent: {spec}"
                raise InfeedError(what, where=target.where, do="use kind: tensorflow")
        self._target = target
        sample = {
            name: Ragged(one.values.numpy(), one.row_splits.numpy()) if hasattr(one, "row_splits") else one.numpy()
            for name, one in sample.items()
        }
        # A dataset needs types and shapes before its first batch, and only the function knows them.
        seeds = np.zeros((rows_of(sample), 2) if target.option == "map_examples" else 2, np.int64)
        made = call_numpy(target, sample, seeds)
        self.like = {name: _Like.of(made[name]) for name in sorted(made)}
        self._check(made, rows_of(sample), "first batch")

    def __call__(self, features: Mapping[str, Any], seeds: tf.Tensor, number: tf.Tensor) -> dict[str, Any]:
        """Call the function on tensors [batch, ...], within a graph."""
        import tensorflow as tf

        spec = _spec(features)
        # `numpy_function` passes and returns flat lists of tensors: a ragged feature is its values and its splits.
        types = list[Any]()
        for one in self.like.values():
            types.append(tf.string if one.dtype.kind in "OS" else tf.as_dtype(one.dtype))
            types += [tf.int64] if one.shape is None else []
        parts = tf.nest.flatten(dict(features), expand_composites=True)
        call = functools.partial(self._run, spec)
        made = iter(tf.numpy_function(call, [number, seeds, *parts], types))
        rows = next((one.shape[0] for one in spec.values()), None)
        tensors = {}
        for name, one in self.like.items():
            if one.shape is not None:
                tensors[name] = tf.ensure_shape(next(made), [rows, *one.shape])
            else:
                values, splits = tf.ensure_shape(next(made), [None]), next(made)
                splits = tf.ensure_shape(splits, [None if rows is None else rows + 1])
                tensors[name] = tf.RaggedTensor.from_row_splits(values, splits)
        return tensors

    def _run(self, spec: Mapping[str, Any], number: Any, seeds: Ints, *parts: Any) -> list[Any]:
        step = f"step {int(number)}"
        given, rest = {}, iter(parts)
        for name in sorted(spec):
            is_dense = not hasattr(spec[name], "ragged_rank")
            given[name] = next(rest) if is_dense else Ragged(next(rest), next(rest))
        if not rows_of(given):  # a worker's part of the last evaluation batch
            return [np.zeros((0, *(one.shape or ())), one.dtype) for one in self.like.values()]
        try:
            made = call_numpy(self._target, given, seeds)
        except InfeedError as error:
            raise InfeedError(error.what, where=f"{error.where}, {step}", do=error.do) from None
        self._check(made, rows_of(given), step)
        values = [made[name] for name in self.like]
        return [part for value in values for part in (value if isinstance(value, Ragged) else [value])]

    def _check(self, made: Mapping[str, Any], rows: int, step: str) -> None:
        """Raise InfeedError if a batch differs from the sample, or has another number of rows."""
        where = f"{self._target.where}, {step}"
        if made.keys() != self.like.keys():
            missing = ", ".join(map(repr, sorted(made.keys() ^ self.like.keys())))
            do = "return the same features for every batch"
            raise InfeedError(f"batches differ in the features {missing}", where=where, do=do)
        for name, like in self.like.items():
            if (now := _Like.of(made[name])) != like:
                what = f"feature {name!r} is {now}, but was {like} in the first batch"
                raise InfeedError(what, where=where, do="return the same types and shapes for every batch")
            if rows_of({name: made[name]}) != rows:
                what = f"feature {name!r} has {rows_of({name: made[name]})} rows, but the batch has {rows}"
                raise InfeedError(what, where=where, do="return one row for each row of the batch")


class TensorFlowMap:
    """TensorFlow function in a graph."""

    def __init__(self, target: Target) -> None:
        import tensorflow as tf

        function, self._seeded = load(target)
        self._target, self._function = target, tf.function(function)

    def __call__(self, features: Mapping[str, Any], seeds: tf.Tensor, number: tf.Tensor) -> dict[str, Any]:
        """Call the function on tensors [batch, ...], on the batch or in a loop over its examples.

        Raises InfeedError if the function cannot be traced, with the line of the user's file.
        """
        import tensorflow as tf

        option, spec = self._target.option, _spec(features)
        with user_code.translate_errors(option), tf.name_scope(option):
            one = spec if option == "map_batches" else tf.nest.map_structure(tensorflow_seam.row_spec, spec)
            named = {"seed": tf.TensorSpec([2], tf.int64)} if self._seeded else {}
            concrete = self._function.get_concrete_function(one, **named)
            _TRACED[concrete.graph] = self._target
            made = checked_dict(concrete.structured_outputs, self._target.where)
            if option == "map_batches":
                return self._call(dict(features), seeds)
            signature = tf.nest.map_structure(_row_signature, _spec(made))
            return dict(tf.map_fn(lambda row: self._call(*row), (dict(features), seeds), fn_output_signature=signature))

    def _call(self, features: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        return dict(self._function(features, seed=seed) if self._seeded else self._function(features))


def _spec(features: Mapping[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    return {name: tf.type_spec_from_value(value) for name, value in features.items()}


def with_rows(name: str, value: Any, rows: int | None, target: Target) -> Any:
    """Set the static number of rows of a feature. Raises InfeedError if the feature has another number."""
    import tensorflow as tf

    if not value.shape[:1].is_compatible_with([rows]):
        what = f"feature {name!r} has {value.shape[0] if value.shape.rank else 'no'} rows, but the batch has {rows}"
        raise InfeedError(what, where=target.where, do="return one row for each row of the batch")
    return tf.ensure_shape(value, [rows, *value.shape[1:]]) if isinstance(value, tf.Tensor) else value


def _row_signature(spec: Any) -> Any:
    """Return the type of a row for a loop that stacks rows. Rows of different lengths become ragged."""
    import tensorflow as tf

    if isinstance(spec, tf.TensorSpec) and spec.shape.rank and not spec.shape.is_fully_defined():
        return tf.RaggedTensorSpec(spec.shape, spec.dtype, spec.shape.rank - 1, tf.int64)
    return spec


@contextmanager
def map_error_context() -> Iterator[None]:
    """Convert TensorFlow's error about a failed function into an InfeedError with the line of the user's file.

    Raises InfeedError if a function of these stages failed in the body of the `with` statement.
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        if told := infeed_error(error):
            raise told from error
        text = str(error)
        # The message names an operation, but several traced functions may hold one of that name.
        functions = re.findall(r"\{\{function_node ([^}]+)\}\}", text)

        def is_other(traced: tuple[Any, Target]) -> bool:
            called = str(traced[0].as_graph_def())
            return not any(name in called for name in functions)

        newest_first = list(_TRACED.items())[::-1]
        for graph, target in sorted(newest_first, key=is_other):
            operation = tensorflow_seam.failed_operation(text, graph)
            if operation is not None and (place := user_code.users_line(operation.traceback)):
                what = f"the function failed on the data: {tensorflow_seam.message_of(text)}"
                do = "correct the data, or replace such values in the function"
                raise InfeedError(what, where=f"{place}, {target.where}", do=do) from error
        raise


def submit(processes: int, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a function of a module in one of `processes` processes, which later calls reuse.

    Raises BrokenProcessPool, here or as the result, if a process was killed. See `naming_broken_pool`.
    """
    return _pool(processes).submit(function, *arguments)


def result(processes: int, future: Future[Any]) -> Any:
    """Wait for a result of `submit` with this number of processes, and raise its errors."""
    return process_pools.result(_pool(processes), future)


@contextmanager
def naming_broken_pool(where: str) -> Iterator[None]:
    """Convert the failure of a pool in the body to an InfeedError at `where`. The next call starts new processes."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        yield
    except BrokenProcessPool:
        _pool.cache_clear()
        do = "check the memory, because the kernel may have killed it, and call main code of a script only under "
        do += "if __name__ == '__main__'"
        raise InfeedError("a process of the function exited", where=where, do=do) from None


@functools.cache
def _pool(processes: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    spawn = multiprocessing.get_context("spawn")  # TensorFlow may hang after a fork
    # Ctrl-C reaches every process, and this one handles it.
    pool = ProcessPoolExecutor(processes, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    process_pools.end_at_exit(pool)
    return pool
