"""Copies of NumPy batches to accelerators: many small arrays are copied as few large ones.

Copying twenty columns one by one costs more than gathering them. So arrays of one type and shape are stacked, copied
together, and split on the device.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from infeed.components.base.errors import InfeedError
from infeed.components.feed.user_maps import Ragged
from infeed.components.load.delivery import split

_WIDE = 8  # bytes of a number that JAX truncates to 32 bits unless 64 are enabled
_MANY = 4  # number of arrays from which a stack is cheaper for JAX than separate copies
_SMALL = 1 << 20  # bytes of a stack up to which a call of `device_put` costs more than the copy itself
# Limits of the batches that JAX splits in one call, and of their arrays. JAX compiles each array for some 10 ms, and
# more arrays in a call are hardly faster.
_BATCHES, _ARRAYS = 32, 64
_ALIGNED = 256  # alignment of stacks in bytes, because kernels read aligned blocks


def mapped(batch: Any, convert: Callable[[Any, str], Any], name: str = "the label") -> Any:
    """Apply `convert(array, name)` to each array of a batch, except object arrays. Raises InfeedError for times."""
    if isinstance(batch, dict):
        return {name: mapped(values, convert, name) for name, values in batch.items()}
    if isinstance(batch, Ragged):
        return Ragged(*(mapped(part, convert, name) for part in batch))
    if isinstance(batch, tuple):
        return tuple(mapped(part, convert) for part in batch)
    if isinstance(batch, np.ndarray) and batch.dtype.kind in "mM":  # else a tensor, which has no times
        what = f"feature {name!r} has the type {batch.dtype}, which only NumPy has"
        raise InfeedError(what, where="infeed.load(...).map", do="return numbers or text")
    return batch if batch.dtype == object else convert(batch, name)


@dataclass
class Stack:
    """Arrays of one type and shape, their names, and their positions in the batch."""

    arrays: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return len(self.arrays) * int(self.arrays[0].nbytes)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.arrays), *self.arrays[0].shape)

    @property
    def dtype(self) -> Any:
        return self.arrays[0].dtype

    @property
    def key(self) -> tuple[Any, ...]:
        """Type and shape."""
        return self.dtype, self.shape


def stacks_of(batch: Any) -> list[Stack]:
    """Return the arrays of a batch by type and shape, except object arrays."""
    stacks, numbers = dict[Any, Stack](), iter(range(1 << 62))

    def add(array: Any, name: str) -> None:
        stack = stacks.setdefault((array.dtype, array.shape), Stack())
        stack.arrays.append(array)
        stack.names.append(name)
        stack.numbers.append(next(numbers))

    mapped(batch, add)
    return list(stacks.values())


def rebuilt(batch: Any, stacks: Iterable[Stack], made: Iterable[Sequence[Any]]) -> Any:
    """Return the batch with the converted arrays of each stack."""
    found: dict[int, Any] = {}
    for stack, arrays in zip(stacks, made, strict=True):
        found.update(zip(stack.numbers, arrays, strict=True))
    arrays_in_order = (found[number] for number in range(len(found)))
    return mapped(batch, lambda _array, _name: next(arrays_in_order))


class SentBatch(NamedTuple):
    """Batch of tensors whose copy to the device has begun."""

    batch: Any
    memory: Any  # byte tensor that holds all of them
    copied: Any  # CUDA event


class CudaCopies:
    """Copies of batches to a CUDA device, on a separate stream from the training step.

    `send` may run in a different thread from the loop.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._torch, self._device = torch, torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)

    def send(self, batch: Any) -> SentBatch:
        """Start copying a batch, all arrays at once."""
        stacks, places, total = stacks_of(batch), list[slice](), 0
        for stack in stacks:
            places.append(slice(total, total + stack.bytes))
            total += -(-stack.bytes // _ALIGNED) * _ALIGNED
        with self._torch.cuda.stream(self._stream):  # also sets the device of this thread
            # PyTorch reuses pinned memory only after its copy has finished.
            pinned = self._torch.empty(total, dtype=self._torch.uint8, pin_memory=True)
            for stack, place in zip(stacks, places, strict=True):
                out = pinned.numpy()[place].view(stack.dtype).reshape(stack.shape)
                np.stack(stack.arrays, out=out)
            memory = self._torch.empty(total, dtype=self._torch.uint8, device=self._device)
            memory.copy_(pinned, non_blocking=True)
            copied = self._stream.record_event()
        views = []
        for stack, place in zip(stacks, places, strict=True):
            dtype = self._torch.from_numpy(np.empty(0, stack.dtype)).dtype
            parts = memory[place].view(dtype).view(stack.shape).unbind()
            # For autograd, `data` are independent tensors: an in-place change of one does not affect the others.
            views.append([view.data for view in parts])
        return SentBatch(rebuilt(batch, stacks, views), memory, copied)

    def receive(self, sent: SentBatch) -> Any:
        """Return a batch for the current stream of this thread. The stream waits for the copy."""
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(sent.copied)
        # The memory was allocated on the other stream, and must not be freed while this one uses it.
        sent.memory.record_stream(current)
        return sent.batch


class JaxCopies:
    """Copies of batches to a JAX device or sharding. None is the default device.

    Several batches that are one, [batches * batch, ...], are copied as [batches, batch, ...]. A NamedSharding then
    divides the second axis, so each device splits its own part.

    uint64 and float64, which only a map can produce, keep 64 bits. JAX itself would truncate them silently. An array
    that the sharding cannot divide, such as a short last batch, is copied to each device.
    """

    def __init__(self, jax: Any, device: Any) -> None:
        self._jax, self._device = jax, device
        # The calling thread may set these in a `with` statement, and `send` may run in another thread.
        self._default, self._narrow = jax.config.jax_default_device, not jax.config.jax_enable_x64
        sharding = device if isinstance(device, jax.sharding.Sharding) else None
        self._is_single = sharding is None or len(sharding.device_set) == 1
        # Types and shapes of small stacks: of the previous batch, and the ones shared by the last two batches.
        self._before, self._repeated = set[Any](), set[Any]()
        self._on = jax.sharding.SingleDeviceSharding(device) if isinstance(device, jax.Device) else sharding
        self._copy = _copying(jax, self._on)
        # Whether `send_several` can send a batch.
        self.splits = self._is_single or isinstance(sharding, jax.sharding.NamedSharding)
        # With several processes, a copy compares their arrays. That must not interleave with the collectives of a step.
        self.is_local = sharding is None or sharding.is_fully_addressable

    def send(self, batch: Any) -> Any:
        """Start copying a batch.

        Raises InfeedError if an int64 exceeds 32 bits and JAX's 64-bit types are disabled.
        """
        stacks = stacks_of(batch)
        with self._jax.default_device(self._default):
            return rebuilt(batch, stacks, self._sent(stacks))

    def send_several(self, batch: Any, batches: int) -> Iterable[Any]:
        """Start copying several batches that are one, and split them on the device.

        An InfeedError is raised in place of the batch that has the value.
        """
        stacks = stacks_of(mapped(batch, lambda array, _: array.reshape(batches, -1, *array.shape[1:])))
        most = batches_a_split(sum(len(stack.arrays) for stack in stacks))
        if most == 1:
            return map(self.send, split(batch, batches))
        try:
            parts = [self._fitted(stack, joins=True) for stack in stacks]
        except InfeedError:
            return map(self.send, split(batch, batches))
        with self._jax.default_device(self._default), self._all_bits(stacks):
            shapes = [stack.shape[2:] for stack in stacks]
            calls = []
            for first in range(0, batches, most):
                some = slice(first, first + most)
                cut = [[one[some] for one in part] if isinstance(part, list) else part[:, some] for part in parts]
                calls.append(self._split(cut, shapes))
        # [calls][stacks][arrays][batches] -> [stacks][arrays][batches]
        joined = [
            [list(chain.from_iterable(some)) for some in zip(*arrays, strict=True)]
            for arrays in zip(*calls, strict=True)
        ]
        return split(rebuilt(batch, stacks, joined), batches)

    def _split(self, parts: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Any:
        """Copy parts, [arrays][batches, batch, ...], and split them into [arrays][batches] of these shapes."""
        if self._is_single:
            return _splitting(self._jax, (self._on,) * len(parts))(parts)
        fitting = tuple(_fitting(self._jax, self._on, shape) for shape in shapes)
        spread = []
        for one, part in zip(fitting, parts, strict=True):  # [batches, batch, ...], or [arrays, batches, batch, ...]
            axes = (None,) * (1 if isinstance(part, list) else 2)
            spec = self._jax.sharding.PartitionSpec(*axes, *one.spec)
            spread.append(self._jax.sharding.NamedSharding(one.mesh, spec))
        return _splitting(self._jax, fitting)(self._jax.device_put(parts, spread))

    def _sent(self, stacks: Sequence[Stack]) -> list[Sequence[Any]]:
        parts, keys = [self._fitted(stack, joins=self._is_single) for stack in stacks], [stack.key for stack in stacks]
        together = self._compilable(stacks)
        with self._all_bits(stacks):
            pairs = list(zip(parts, keys, strict=True))
            some = [part for part, key in pairs if key in together]
            copied = iter(self._copy(some) if some else [])
            sent = list[Sequence[Any]]()
            for part, key in pairs:
                if key in together:
                    sent.append(next(copied))
                elif isinstance(part, list):
                    fitting = [_fitting(self._jax, self._device, array.shape) for array in part]
                    sent.append(list(map(self._jax.device_put, part, fitting)))
                else:
                    sent.append(self._copy([part])[0])
            return sent

    def _compilable(self, stacks: Sequence[Stack]) -> set[Any]:
        """Return the types and shapes of the stacks to copy in one call of a compiled function.

        The call costs a fraction of one `device_put`, but compiles for each combination of shapes. So the last three
        batches must have had all of them.
        """
        keys = {stack.key for stack in stacks if self._is_single and stack.bytes <= _SMALL}
        repeated, before = keys & self._before, self._repeated
        self._before, self._repeated = keys, repeated
        return repeated if repeated == before else set()

    def _fitted(self, stack: Stack, *, joins: bool) -> Any:
        """Return the arrays of a stack in types that JAX keeps: as a list, or if `joins` and many, as one array."""
        if joins and len(stack.arrays) >= _MANY:
            return self._narrowed(np.stack(stack.arrays), stack.names)
        pairs = zip(stack.arrays, stack.names, strict=True)
        return [self._narrowed(array[np.newaxis], [name])[0] for array, name in pairs]

    def _narrowed(self, arrays: Any, names: Sequence[str]) -> Any:
        return _as_int32(arrays, names) if self._becomes_int32(arrays.dtype) else arrays

    def _becomes_int32(self, dtype: Any) -> bool:
        return bool(self._narrow and dtype == np.int64)

    def _all_bits(self, stacks: Sequence[Stack]) -> Any:
        is_wide = any(one.dtype.itemsize == _WIDE and not self._becomes_int32(one.dtype) for one in stacks)
        return enable_x64(self._jax)(True) if is_wide else nullcontext()


def enable_x64(jax: Any) -> Callable[[bool], Any]:
    """Return JAX's context of 64-bit types. JAX 0.4, which TFX 1.16 requires, has it in `jax.experimental` only."""
    found: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    enable: Callable[[bool], Any] = found.enable_x64
    return enable


@functools.cache
def _copying(jax: Any, on: Any) -> Callable[..., Any]:
    """Return a compiled function that copies stacks to a sharding or the default device, and splits them."""
    copied: Callable[..., Any] = jax.jit(lambda parts: [tuple(part) for part in parts], out_shardings=on)
    return copied


@functools.cache
def _splitting(jax: Any, on: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a compiled function that splits stacks of several batches into [stacks][arrays][batches].

    The batches of a stack have its sharding in `on`.
    """
    divided: Callable[..., Any] = jax.jit(
        lambda parts: [[list(array) for array in part] for part in parts], out_shardings=list(on)
    )
    return divided


def batches_a_split(arrays: int) -> int:
    """Return the number of batches of so many arrays to split in one call."""
    return max(1, min(_BATCHES, _ARRAYS // max(1, arrays)))


def _fitting(jax: Any, device: Any, shape: tuple[int, ...]) -> Any:
    """Return the sharding, or if it cannot divide `shape`, one that copies the array to all of its devices."""
    if not isinstance(device, jax.sharding.NamedSharding):
        return device
    try:
        if len(device.spec) <= len(shape):  # JAX raises an IndexError for more axes than an array has
            device.shard_shape(shape)
            return device
    except ValueError:
        pass
    return jax.sharding.NamedSharding(device.mesh, jax.sharding.PartitionSpec())


def _as_int32(arrays: Any, names: Sequence[str]) -> Any:
    """Narrow int64 [names, ...], the only integers of tf.Examples. JAX itself would truncate them silently."""
    narrow = arrays.astype(np.int32)
    if (is_wrong := narrow != arrays).any():
        wrong = np.argwhere(is_wrong)[0]
        value, name = arrays[tuple(wrong)], names[wrong[0]]
        what = f"{value} of {name!r} does not fit into 32 bits, and JAX has no larger integers"
        do = "set jax_enable_x64, or exclude the column with columns=[...]"
        raise InfeedError(what, where=f"infeed.load(...).jax(), {name}", do=do)
    return narrow
