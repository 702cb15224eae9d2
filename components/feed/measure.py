"""Measurement of an input pipeline without a model: run it up to each stage, and compare.

A cut is the pipeline up to a stage. All cuts run in turn, several times, for the same number of examples. The cost of
a stage is the difference between its cut and the previous one, as the median over the turns. If the difference is at
most twice its spread, the noise of the machine hides the stage. Memory is measured separately and twice, because the C
library may still hold memory of another cut.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from infeed.components.base import machine
from infeed.components.dataset.input_profile import StageCost, pace_setter
from infeed.components.dataset.records import is_gzip
from infeed.components.feed.build import bytes_of, context_of
from infeed.components.feed.capacity import short_name
from infeed.components.feed.columns import mapped, reading_options
from infeed.components.feed.plan import InputPlan
from infeed.components.feed.row_batches import RowBatches
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.feed.stages.batches import PrefetchToDevice
from infeed.components.feed.stages.columns import CacheColumns, CacheRecords, LoadColumns
from infeed.components.feed.stages.reading import ListShards, PermuteShards, SampleSplits, ShuffleWindows, VerifyFiles
from infeed.components.seams.tensorflow import inputs_of, mapped_graph, untuned

Clock = Callable[[], tuple[float, float]]  # wall-clock seconds, CPU seconds of this process
HAND_OVER, COPY = "hand-over", "copy to "  # the name of the device follows
_ONCE = (VerifyFiles, ListShards, PermuteShards, PrefetchToDevice)
_KEEPING = (LoadColumns, CacheColumns, CacheRecords)
TURNS = 7
_FEWEST_TURNS = 3  # turns required to estimate a spread
_OF_MEMORY = 2  # turns
_MOST_WAITS, _WAIT_SECONDS, _SETTLED_BYTES = 50, 0.01, 1 << 20  # memory has settled once a wait frees fewer bytes
_MOST_BYTES = 64 << 20  # maximum bytes of files whose rows a measurement holds in memory a second time
_WINDOW = 10_000  # records
_HOST = "CPU:0"
_CHUNKS, _MOST_OF_A_CHUNK = 16, 64  # minimum chunks per turn, maximum examples per chunk
_UNTIMED = 3  # untimed elements before a turn of the calibration


def clock() -> tuple[float, float]:
    """Return wall-clock time and CPU time of this process, in seconds."""
    return time.perf_counter(), time.process_time()


@dataclass(frozen=True)
class Cut:
    """The pipeline up to a stage."""

    name: str
    does: str
    dataset: tf.data.Dataset  # endless output of the stage
    # Whether the first dimension of an element counts examples. If not, an element is one example.
    is_batched: bool = True
    is_first: bool = False  # whether no earlier cut is a prefix of this one
    hands_over: bool = False  # whether the loop receives all tensors of an element
    counts: bool = False  # whether the last tensor of an element is its number of examples
    device: str = ""  # device to which the loop copies each element. Empty for none
    once: bool = False  # whether the stage runs once, because a later stage keeps its output
    beside: bool = False  # whether training skips the stage
    rival: bool = False  # whether this is another pipeline that is measured for comparison


@dataclass(frozen=True)
class Measured:
    """Costs of all stages, in order, and the slowest stage. Empty if none stands out."""

    stages: tuple[StageCost, ...]
    bound_by: str


def plan_cuts(plan: InputPlan, functions: BatchFunctions) -> list[Cut]:
    """Return the cuts of a plan. Stages that keep rows run now, so later cuts cost what an epoch costs."""
    # A cut is the pipeline up to a stage. The difference of two neighbors is the cost of a stage.
    context = context_of(plan, functions)
    paths, records = [one.path for one in plan.shards], [one.records for one in plan.shards]
    files = tf.data.Dataset.from_tensor_slices((paths, tf.constant(records, tf.int64)))
    read = mapped(files, lambda path, count: (tf.io.read_file(path), count)).repeat()  # without unpacking
    cuts = [Cut("read", "reads the bytes of whole files", read, is_first=True, counts=True)]
    made: Any = None
    is_first = False
    for stage in plan.stages:
        made = stage.apply(made, context)
        if isinstance(stage, _KEEPING):
            # What lies before is paid in the first epoch only.
            cuts = [replace(one, once=True) for one in cuts]
            is_first = True
        elif not isinstance(stage, _ONCE):
            name = stage.name
            if name == "read":  # the stage also decompresses, which takes most of its time
                name = "decompress" if is_gzip(plan.shards[0].path) else "records"
            dataset = _dataset_of(made).with_options(reading_options(streams=not plan.holds_rows))
            cuts.append(Cut(name, stage.does, dataset, is_first=is_first))
            is_first = False
    return [*cuts, *_handing_over(cuts[-1])]


def short_plan(plan: InputPlan, most_bytes: float = _MOST_BYTES) -> InputPlan | None:
    """Return a plan with the same stages that takes only seconds to measure. None if that is impossible.

    Its windows are smaller. If the plan keeps rows in memory, it reads only the first files, up to `most_bytes`,
    because the measurement holds their rows twice.
    """
    stages = tuple(
        replace(one, window=min(one.window, _WINDOW)) if isinstance(one, ShuffleWindows | SampleSplits) else one
        for one in plan.stages
    )
    if not any(isinstance(one, LoadColumns | CacheRecords) for one in stages):
        return replace(plan, stages=stages)
    # Whole files, because the stages that keep rows read from the beginning of a file.
    sizes = itertools.accumulate(one.bytes for one in plan.shards)
    shards = tuple(one for one, size in zip(plan.shards, sizes, strict=True) if size <= most_bytes)
    mixes = any(getattr(one, "weights", None) for one in stages)
    rows = sum(one.records for one in shards)
    if rows < plan.batch.size or plan.tier == "device" or (mixes and len(shards) < len(plan.shards)):
        return None
    return replace(plan, stages=stages, shards=shards, records=rows)


def dataset_cuts(dataset: tf.data.Dataset) -> list[Cut]:
    """Return the cuts of a user's dataset, after each of its transformations."""
    chain = list(_chain(dataset))[::-1]
    kinds = [type(one).__name__ for one in chain]
    first = next((place for place, kind in enumerate(kinds) if "Batch" in kind and "Unbatch" not in kind), 0)
    cuts = [
        Cut(_operation(one), kinds[place].lstrip("_"), _endless(one), place >= first, place == 0)
        for place, one in enumerate(chain)
    ]
    return [*cuts, *_handing_over(cuts[-1])]


def rival_cut(cuts: Sequence[Cut]) -> Cut:
    """Combine the cuts of another pipeline into one cut, to measure it next to other cuts."""
    return replace(next(one for one in reversed(cuts) if not one.beside), is_first=True, rival=True)


def measure(cuts: Sequence[Cut], *, seconds: float = 20.0, turns: int = TURNS, now: Clock = clock) -> Measured:
    """Measure the cuts for about `seconds` in total, or longer if five starts of each take longer.

    Each cut runs at most `turns` times.
    """
    begin, _ = now()
    loops = [_Loop(cut) for cut in cuts]
    each = seconds / ((1 + turns + _OF_MEMORY) * len(loops))
    slowest = [loop.calibrate(each, now) for loop in loops]
    # All cuts of a pipeline take as many examples as the slowest. Cuts before the rows are kept in memory count as a
    # separate pipeline, because they are far slower.
    starts = [*(place for place, loop in enumerate(loops) if loop.cut.is_first or not place), len(loops)]
    counts = [min(slowest[one:other]) for one, other in itertools.pairwise(starts) for _ in range(one, other)]
    taken: list[list[tuple[float, float]]] = [[] for _ in loops]
    first, _ = now()
    # Turns alternate between cuts, so that slow phases of the machine affect neighboring cuts alike.
    for number in range(turns):
        passed = now()[0] - begin
        if number >= _FEWEST_TURNS and passed + (passed + begin - first) / number > seconds:  # the next would end late
            break
        for place, loop in enumerate(loops):
            taken[place].append(loop.turn(counts[place], now))
    # After all turns, because returning memory to the system slows down the next turn.
    for _ in range(_OF_MEMORY):
        for place, loop in enumerate(loops):
            loop.grow(counts[place])
    stages = tuple(
        _cost(loop, taken[place], None if loop.cut.is_first or not place else taken[place - 1])
        for place, loop in enumerate(loops)
    )
    return Measured(stages, pace_setter([one for one, cut in zip(stages, cuts, strict=True) if not cut.rival]))


def examples_of_a_turn(cut: Cut, seconds: float) -> int:
    """Return the number of examples that a cut yields in about `seconds`.

    A turn must take several elements of every stage. Otherwise, few examples bear the cost of a whole window or call.
    """
    return _Loop(cut).calibrate(seconds, clock)


class _Loop:
    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.bytes_per_example = 0.0
        self.grown: int | None = None
        dataset = cut.dataset if cut.hands_over else mapped(cut.dataset, lambda *one: self._rows(one), calls=None)

        @tf.function
        def take(iterator: Any, count: tf.Tensor) -> tf.Tensor:
            rows = tf.constant(0, tf.int64)
            while rows < count:
                one = next(iterator)
                with tf.control_dependencies(self._copies(one)):
                    rows += self._rows(one) if cut.hands_over else one
            return rows

        # TensorFlow's tuner needs more than seconds to choose its numbers of parallel calls.
        self._take, self._dataset = take, untuned(dataset)

    def calibrate(self, seconds: float, now: Clock) -> int:
        """Return the number of examples that take about `seconds`."""
        iterator, rows = iter(self._dataset), 0
        self._take(iterator, tf.constant(_UNTIMED, tf.int64))  # traces
        begin, _ = now()
        while (passed := now()[0] - begin) < seconds:
            rows += int(self._take(iterator, tf.constant(max(1, rows), tf.int64)))
        return max(1, round(rows * min(1.0, seconds / passed)))

    def turn(self, count: int, now: Clock) -> tuple[float, float]:
        """Return wall-clock and CPU seconds per example, over `count` examples of a new iterator."""
        if not self.bytes_per_example:
            element = next(iter(self.cut.dataset))
            size = sum(map(bytes_of, tf.nest.flatten(element, expand_composites=True)))
            self.bytes_per_example = size / max(1, int(self._rows(element)))
        dataset, chunk = self._dataset, min(_MOST_OF_A_CHUNK, count // _CHUNKS)
        if chunk > 1 and not (self.cut.is_batched or self.cut.hands_over or self.cut.counts):
            # The loop's cost per element exceeds that of many stages per example, so it takes examples in chunks.
            chunks = self.cut.dataset.window(chunk, drop_remainder=True)  # windows copy nothing
            dataset = untuned(mapped(chunks, lambda *_: tf.constant(chunk, tf.int64), calls=None))
        iterator = iter(dataset)
        self._take(iterator, tf.constant(1, tf.int64))  # opens files and prepares graphs, once per training
        begin, cpu = now()
        rows = int(self._take(iterator, tf.constant(count, tf.int64)))
        end, cpu_end = now()
        return (end - begin) / rows, (cpu_end - cpu) / rows

    def grow(self, count: int) -> None:
        """Measure the memory that `count` examples of a new iterator need, if the system reports it.

        Both the process and TensorFlow's allocator, which keeps large blocks, are measured.
        """
        resident, held, peak = _settled_memory(), 0, 0
        with suppress(ValueError):  # this allocator does not report its use
            tf.config.experimental.reset_memory_stats(_HOST)
            held = tf.config.experimental.get_memory_info(_HOST)["current"]
        self._take(iter(self._dataset), tf.constant(count, tf.int64))
        with suppress(ValueError):
            peak = tf.config.experimental.get_memory_info(_HOST)["peak"]
        if resident is not None:
            self.grown = max(0, self.grown or 0, peak - held, machine.peak_memory() - resident)

    def _copies(self, element: Any) -> list[tf.Tensor]:
        """Copy an element to the device of the cut. Text stays on the host."""
        if not self.cut.device:
            return []
        tensors = tf.nest.flatten(element, expand_composites=True)
        with tf.device(self.cut.device):  # not tf.identity, which copies nothing on the host and may be optimized away
            return [tf.raw_ops.DeepCopy(x=one) for one in tensors if one.dtype != tf.string]

    def _rows(self, element: Any) -> tf.Tensor:
        if self.cut.counts:
            return element[-1]
        if not self.cut.is_batched:
            return tf.constant(1, tf.int64)
        last = tf.nest.flatten(element)[-1]
        if isinstance(last, tf.RaggedTensor):
            return last.nrows()
        if isinstance(last, tf.SparseTensor):
            return last.dense_shape[0]
        return tf.shape(last, tf.int64)[0] if last.shape.rank != 0 else tf.constant(1, tf.int64)


def _settled_memory() -> int | None:
    """Reset the peak once TensorFlow has freed the memory of former iterators in the background."""
    resident = machine.reset_peak_memory()
    for _ in range(_MOST_WAITS):
        time.sleep(_WAIT_SECONDS)
        before, resident = resident, machine.reset_peak_memory()
        if before is None or resident is None or before - resident < _SETTLED_BYTES:
            break
    return resident


def _cost(loop: _Loop, taken: Sequence[tuple[float, float]], before: Sequence[tuple[float, float]] | None) -> StageCost:
    base = before or [(0.0, 0.0)] * len(taken)
    # Turn by turn, so that a slow phase of the machine is in both sides of a difference.
    clocks = [1e6 * (one[0] - other[0]) for one, other in zip(taken, base, strict=True)]
    cpus = [1e3 * (one[1] - other[1]) for one, other in zip(taken, base, strict=True)]
    low, middle, high = statistics.quantiles(clocks, n=4, method="inclusive")
    return StageCost(
        name=loop.cut.name,
        does=loop.cut.does,
        microseconds=middle,
        spread=(high - low) / 2,
        cpu_seconds=statistics.median(cpus),
        examples_per_second=1 / statistics.median(one for one, _ in taken),
        bytes_per_example=loop.bytes_per_example,
        hidden=middle <= high - low,
        once=loop.cut.once,
        memory_bytes=loop.grown,
        beside=loop.cut.beside,
    )


def _dataset_of(made: Any) -> tf.data.Dataset:
    """Convert the output of a stage to a dataset of endless elements."""
    if isinstance(made, RowBatches):
        return made.dataset()
    if isinstance(made, list):
        (made,) = made
    if isinstance(made, tf.data.Dataset):
        return _endless(made)
    return tf.data.Dataset.counter().flat_map(made)


def _endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset if dataset.cardinality() == tf.data.INFINITE_CARDINALITY else dataset.repeat()


def _handing_over(last: Cut) -> list[Cut]:
    """Return the cuts that end in the loop: receive each batch, and copy it to the device of the step."""
    does = "passes every tensor of a batch to the training loop"
    handed = Cut(HAND_OVER, does, last.dataset, last.is_batched, hands_over=True)
    if all(spec.dtype == tf.string for spec in tf.nest.flatten(last.dataset.element_spec, expand_composites=True)):
        return [handed]
    (device, *_) = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    on_host = device.device_type == "CPU"
    name = short_name(device.name)
    does = f"copies each batch to {name}" + (", which training on the host skips" if on_host else "")
    return [handed, replace(handed, name=f"{COPY}{name}", does=does, device=device.name, beside=on_host)]


def _chain(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and its inputs, as long as their elements are examples or batches."""
    while True:
        name, inputs = type(dataset).__name__, inputs_of(dataset)
        if "Options" not in name:
            yield dataset
        reads = isinstance(dataset, tf.data.TFRecordDataset | tf.data.TextLineDataset)
        if reads or len(inputs) != 1 or "Interleave" in name or "FlatMap" in name:
            return
        dataset = inputs[0]


def _operation(dataset: Any) -> str:
    """Return the name of a transformation as users write it."""
    name = type(dataset).__name__.strip("_")
    names = {"TFRecord": "read", "TextLine": "read", "Interleave": "interleave", "Map": "map", "Batch": "batch"}
    shown = next((value for key, value in names.items() if key in name), name.removesuffix("Dataset").lower())
    if "FlatMap" in name:
        shown = "flat_map"
    graph = mapped_graph(dataset)
    if graph is not None and "PyFunc" in str(graph.as_graph_def()):
        return "Python generator" if shown == "flat_map" else f"{shown} (Python)"
    return shown
