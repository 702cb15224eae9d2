"""Copies to accelerators: what travels together, and that each array arrives in its place."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.feed.user_maps import Ragged
from infeed.components.load.devices import CudaCopies, JaxCopies, enable_x64, mapped, rebuilt, stacks_of
from infeed.components.load.frameworks import to_jax


def flat(batch: Any) -> list[tuple[str, np.dtype[Any], tuple[int, ...], list[Any]]]:
    """The name, type, shape and values of each array of a batch, in their order."""
    found = []

    def add(array: Any, name: str) -> None:
        values = np.asarray(array)
        found.append((name, values.dtype, values.shape, values.tolist()))

    mapped(batch, add)
    return found


def a_batch(rows: int = 3) -> Any:
    """Every sort of array: views of a packed one, lists, pictures, flags, text, and a label."""
    packed = np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)
    lists = Ragged(np.arange(4), np.array([0] * rows + [4]))
    features = {f"x{number}": packed[:, number] for number in range(4)} | {"pair": packed[:, 1:3]}
    features |= {"list": lists, "none": Ragged(np.empty(0, np.float32), np.zeros(rows + 1, np.int64))}
    features |= {f"id{number}": np.arange(rows) + number for number in range(5)}
    features["image"] = np.arange(rows * 12, dtype=np.uint8).reshape(rows, 2, 2, 3)
    features["flag"], features["name"] = np.arange(rows) > 0, np.array([b"a"] * rows, object)
    return features, np.arange(rows)


@given(st.lists(st.tuples(st.sampled_from(["<f4", "<i8", "|u1"]), st.integers(0, 2)), max_size=12))
def test_arrays_of_one_type_and_shape_share_a_stack_and_return_to_their_places(kinds):
    batch = {f"f{number}": np.full((2, width), number, kind) for number, (kind, width) in enumerate(kinds)}
    stacks = stacks_of(batch)
    assert len(stacks) == len(set(kinds))
    for stack in stacks:
        assert np.stack(stack.arrays).shape == stack.shape
        assert sum(array.nbytes for array in stack.arrays) == stack.bytes
    back = rebuilt(batch, stacks, [[array + 0 for array in stack.arrays] for stack in stacks])
    assert list(back) == list(batch)
    assert flat(back) == flat(batch)


def test_what_has_no_number_stays_as_it_is():
    batch = a_batch()
    stacks = stacks_of(batch)
    assert "name" not in {name for stack in stacks for name in stack.names}
    assert rebuilt(batch, stacks, [stack.arrays for stack in stacks])[0]["name"] is batch[0]["name"]


class FakeTorch:
    """PyTorch whose CUDA device is the CPU. `calls` are those that order the streams."""

    def __init__(self) -> None:
        import torch

        self.calls = calls = list[str]()

        class Memory(torch.Tensor):
            def copy_(self, source: Any, non_blocking: bool = False) -> Any:
                calls.append(f"copy {source.numel()} bytes{' without waiting' * non_blocking}")
                return super().copy_(source)

            def record_stream(self, stream: Any) -> None:
                calls.append(f"memory is in use on {stream.name}")

        def empty(size: int, dtype: Any, device: Any = None, pin_memory: bool = False) -> Any:
            calls.append("pin" if pin_memory else "allocate")
            made = torch.empty(size, dtype=dtype)
            return made if pin_memory else made.as_subclass(Memory)

        def waits(name: str) -> Any:
            return SimpleNamespace(name=name, wait_event=lambda event: calls.append(f"{name} waits for {event}"))

        side = waits("side")
        side.record_event = lambda: "the copy"
        self.cuda = SimpleNamespace(
            current_device=lambda: 0,
            Stream=lambda device: side,
            stream=lambda stream: nullcontext(),
            current_stream=lambda device: waits("the loop"),
        )
        self.empty, self.device, self.uint8, self.from_numpy = empty, torch.device, torch.uint8, torch.from_numpy


@pytest.mark.frameworks
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_batch_for_cuda_travels_in_one_copy_for_which_the_loops_stream_waits(rows):
    torch = FakeTorch()
    copies = CudaCopies(torch, torch.device("cuda"))
    batch = a_batch(rows) if rows else {"name": np.array([b"a"], object)}
    sent = copies.send(batch)
    assert torch.calls[:2] == ["pin", "allocate"]
    assert torch.calls[2:] == [f"copy {sent.memory.numel()} bytes without waiting"]
    made = copies.receive(sent)
    assert torch.calls[3:] == ["the loop waits for the copy", "memory is in use on the loop"]
    assert flat(made) == flat(batch)
    mapped(made, lambda tensor, name: pytest.fail(name) if not tensor.is_contiguous() else None)


@pytest.mark.frameworks
def test_a_change_in_place_of_one_tensor_does_not_concern_autograd_of_another():
    import torch

    fake = FakeTorch()
    features, _ = CudaCopies(fake, torch.device("cuda")).send(a_batch()).batch
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * features["x0"]).sum()
    features["x1"] += 1
    features["x2"].mul_(weight)
    loss.backward()
    assert weight.grad.tolist() == [0, 5, 10]
    assert not features["x3"].requires_grad


@pytest.mark.frameworks
@pytest.mark.parametrize("is_local", [True, False])
def test_over_several_processes_the_loops_thread_sends(monkeypatch, is_local):
    import jax

    threads = list[str]()
    monkeypatch.setattr(JaxCopies, "send", lambda self, batch: threads.append(threading.current_thread().name))
    monkeypatch.setattr(jax.sharding.SingleDeviceSharding, "is_fully_addressable", is_local)
    list(to_jax(jax.sharding.SingleDeviceSharding(jax.devices()[0]), ahead=2)(iter([1, 2, 3])))
    assert {one == threading.current_thread().name for one in threads} == {not is_local}
    assert len(threads) == 3


@pytest.mark.frameworks
def test_jax_has_the_batch_with_integers_of_32_bits():
    import jax

    made, batch = JaxCopies(jax, None).send(a_batch()), a_batch()
    narrow = [
        (name, np.dtype(np.int32) if kind == np.int64 else kind, shape, values)
        for name, kind, shape, values in flat(batch)
    ]
    assert flat(made) == narrow
    mapped(made, lambda array, name: None if isinstance(array, jax.Array) else pytest.fail(name))


@pytest.mark.frameworks
@pytest.mark.parametrize("place", ["default", "device", "sharding"])
def test_later_batches_of_one_shape_are_copies_on_the_same_device(place):
    import jax

    [device, *_] = jax.devices()
    on = {"default": None, "device": device, "sharding": jax.sharding.SingleDeviceSharding(device)}[place]
    copies, given = JaxCopies(jax, on), [{"x": np.full((64, 16), step, np.float32)} for step in range(4)]
    made = [copies.send(batch)["x"] for batch in given[:2]] + [copies.send(batch)["x"] for batch in given[2:]]
    jax.block_until_ready(made)
    given[3]["x"][:] = -1
    assert [float(array[0, 0]) for array in made] == [0, 1, 2, 3]
    assert {array._committed for array in made} == {on is not None}
    assert {array.device for array in made} == {device}


@pytest.mark.frameworks
def test_arrays_whose_shape_varies_are_not_compiled():
    import jax

    copies = JaxCopies(jax, None)
    compiled = copies._copy._cache_size()
    for rows in (3, 4, 3, 5, 3):
        copies.send({"x": np.zeros((rows, 7), np.float32)})
    assert copies._copy._cache_size() == compiled


@pytest.mark.frameworks
@pytest.mark.parametrize("columns", [1, 8])
def test_an_integer_that_jax_would_cut_is_an_error_about_its_column(columns):
    import jax

    batch = {f"id{number}": np.array([0, number]) for number in range(columns)}
    batch[f"id{columns - 1}"][1] = -(1 << 31) - 1
    with pytest.raises(InfeedError, match="-2147483649") as error:
        JaxCopies(jax, None).send(batch)
    assert error.value.where.endswith(f"id{columns - 1}")


@pytest.mark.frameworks
@pytest.mark.parametrize("columns", [1, 8])
@pytest.mark.parametrize("dtype", [np.uint64, np.float64])
def test_64_bits_of_a_map_are_kept(columns, dtype):
    import jax

    batch = {f"key{number}": np.array([1 << 40], dtype) + number for number in range(columns)}
    assert flat(JaxCopies(jax, None).send(batch)) == flat(batch)


@pytest.mark.frameworks
def test_what_the_callers_thread_has_set_holds_in_the_thread_that_copies(write, cache):
    import jax

    from infeed.components.load.dataset import load

    data = load(write("a.tfrecord", {"id": [1, 1 << 40]}), cache_dir=cache, batch_size=2, shuffle=False)
    with enable_x64(jax)(True):
        assert next(data.jax())["id"].tolist() == [1, 1 << 40]


def test_jax_has_its_64_bits_in_one_of_two_places(monkeypatch):
    assert enable_x64(SimpleNamespace(enable_x64="new")) == "new"
    monkeypatch.setitem(sys.modules, "jax.experimental", SimpleNamespace(enable_x64="old"))
    assert enable_x64(SimpleNamespace()) == "old"
