"""Cost of a step for a batch that is ready, and accuracy of the waiting time that two workers report.

    python benchmarks/wait.py
    python benchmarks/wait.py --rows 64 --turns 3 --no-workers

The benchmark trains a tiny model on 14 float and 5 integer columns of the tier `columns`, in the Trainer's loop of 16
steps per call, in which each step gathers its rows. A second loop has the batch in the graph; the difference is the
cost of feeding a step. A third loop takes the same batches from a dataset, as for steps that do not run on the device
of the columns. A fourth loop takes one constant batch. One device and two mirrored devices run in separate processes.

Two workers train on batches that are late on the first, on the second, and on both. The loss is the time of a step
beyond that without delay. The profile reports the largest share that a worker waited above the floor. On an idle
machine, the two should differ by less than five points.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from clock import Cost, Stopwatch, median
from harness import Result, Side, as_json, interleave, report

FLOATS, INTEGERS, RECORDS, SEED = 14, 5, 65_536, 0
CALL, CALLS = 16, 25  # steps per call, and calls per turn
DELAYS = {"nobody": (0.0, 0.0), "the first": (0.1, 0.0), "the second": (0.0, 0.1), "both": (0.1, 0.1)}
WORKERS_BATCH, DELAYED_STEPS, EPOCHS = 64, 40, 3


@click.command()
@click.option("--rows", "rows", type=int, multiple=True, default=(64, 256, 1024), help="Rows of a batch.")
@click.option("--turns", default=15, help="Turns of each contender.")
@click.option("--workers/--no-workers", default=True, help="Also start two workers.")
@as_json
def main(rows: tuple[int, ...], turns: int, workers: bool, as_json: bool) -> None:
    """Measure the waiting time, and print a table."""
    report(results(rows, turns, workers), as_json)


def results(rows: Sequence[int], turns: int, workers: bool) -> Iterator[Result]:
    for strategy in ("one_device", "mirrored"):
        for size in rows:
            command = [sys.executable, __file__, "steps", strategy, str(size), str(turns)]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            for line in printed.splitlines():
                if line.startswith(Result.FIRST):
                    yield Result.from_json(line)
    if workers:
        yield from two_workers()


def steps(name: str, size: int, turns: int) -> Result:
    """Run the loops in turns in one process, and return the microseconds per step of each."""
    import tensorflow as tf

    from infeed.components.feed.meter import Meter
    from infeed.components.trainer.distribution import distribute, make_strategy
    from infeed.components.trainer.steps import make_row_steps, make_train_steps, prepare

    if name == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = make_strategy(name)
    with tempfile.TemporaryDirectory() as folder:
        by_rows, batches = _batches(folder, size, by_rows=True), _batches(folder, size)
    model = _model(strategy)
    prepare(model, strategy, batches.element_spec)
    constant = tf.data.Dataset.from_tensors(next(iter(batches))).repeat().prefetch(2)
    meter, handed = Meter(), (by_rows.handed(CALL), batches, constant)
    rows, fed, ready = (iter(distribute(one, strategy, size)) for one in handed)
    train, gather = make_train_steps(model, strategy, meter), make_row_steps(model, strategy, meter, by_rows)
    in_graph = _in_graph(model, strategy, next(ready))
    took = interleave(
        {
            "graph": lambda: _timed(lambda: in_graph(tf.constant(CALL))),
            "feed": lambda: _timed(lambda: gather(rows, tf.constant(CALL))),
            "batches": lambda: _timed(lambda: train(fed, tf.constant(CALL))),
            "constant": lambda: _timed(lambda: train(ready, tf.constant(CALL))),
        },
        turns + 1,  # the first turn traces the graphs
    )
    ideal, ours, *others = (median(costs[1:]) for costs in took.values())
    loops = dict(zip(("feed", "dataset of batches", "constant dataset"), (ours, *others), strict=True))
    over = {f"us a step over the batch in the graph, {loop}": 1e6 * (loops[loop].wall - ideal.wall) for loop in loops}
    over |= {f"us of CPU over it, {loop}": 1e6 * (loops[loop].cpu - ideal.cpu) for loop in loops}
    case = f"{name}, {size:,} rows, a step"
    in_memory = Side("batch in the graph", ideal.cpu, ideal.wall)
    return Result("wait", case, Side("feed", ours.cpu, ours.wall, also=over), in_memory, turns)


def _timed(call: Callable[[], Any]) -> Cost:
    watch = Stopwatch()
    for _ in range(CALLS):
        call()
    return watch.cost / (CALLS * CALL)


def _in_graph(model: Any, strategy: Any, batch: Any) -> Callable[[Any], None]:
    import tensorflow as tf

    from infeed.components.trainer.steps import replica_step

    step = replica_step(model.train_step, model)

    @tf.function
    def train(count: tf.Tensor) -> None:
        for _ in tf.range(count):
            strategy.run(step, args=(batch,))

    return train  # type: ignore[no-any-return]


def _model(strategy: Any) -> Any:
    import keras

    with strategy.scope():
        keras.utils.set_random_seed(SEED)
        inputs = {name: keras.Input((1,), name=name, dtype=kind) for name, kind in _columns().items()}
        values = [keras.ops.cast(one, "float32") for one in inputs.values()]
        made = keras.layers.Dense(1)(keras.layers.Dense(8, "relu")(keras.layers.Concatenate()(values)))
        model = keras.Model(inputs, made)
        model.compile("sgd", "mse")
    return model


def _columns() -> dict[str, str]:
    return {f"f{i}": "float32" for i in range(FLOATS)} | {f"i{i}": "int64" for i in range(INTEGERS)}


def _batches(folder: str, size: int, *, by_rows: bool = False) -> Any:
    """Return batches of the feed's tier `columns`. A record is the bytes of its numbers."""
    import numpy as np
    import tensorflow as tf

    from infeed.components.feed.build import build, measure_records
    from infeed.components.feed.capacity import Machine
    from infeed.components.feed.options import FeedOptions
    from infeed.components.feed.plan import FeedSpec, plan
    from infeed.components.feed.shards import ShardFile
    from infeed.components.feed.stages.base import BatchFunctions

    path, columns = f"{folder}/part-0", _columns()
    with tf.io.TFRecordWriter(path) as writer:
        for row in np.random.default_rng(SEED).random((RECORDS, len(columns) + 1), np.float32):
            writer.write(row.tobytes())

    def transform(values: Any) -> Any:  # float32 [batch, columns + 1]
        features = {name: tf.cast(values[:, i : i + 1], kind) for i, (name, kind) in enumerate(columns.items())}
        return features, values[:, -1]

    def parse(records: Any) -> Any:
        return tf.ensure_shape(tf.io.decode_raw(records, tf.float32), [None, len(columns) + 1])

    functions = BatchFunctions(parse, transform)
    shards = [ShardFile(path, RECORDS, Path(path).stat().st_size)]
    options = FeedOptions(batch_size=size, tier="columns")
    spec = FeedSpec(True, measure_records(shards, functions), devices=("CPU:0",) if by_rows else ())
    return build(plan(shards, spec, options, Machine.here()), functions)


def two_workers() -> Iterator[Result]:
    """Compare the profile of two workers with the time that the job lost, for each late worker."""
    found = _job()
    without = found.pop("nobody")["step"]
    for late, told in found.items():
        said = {
            "points of time lost": 100 * max(0.0, 1 - without / told["step"]),
            "points of time said to be waited": told["judged"],
            "points by worker": ", ".join(f"{one:.1f}" for one in told["workers"]),
        }
        ours = Side("late batches", wall=told["step"], also=said)
        yield Result("wait", f"two workers, late on {late}, a step", ours, Side("none late", wall=without), 1)


def _job() -> Any:
    """Run two workers, and return the output of the first."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in sockets:
            one.bind(("localhost", 0))
        cluster = {"worker": [f"localhost:{one.getsockname()[1]}" for one in sockets]}
    running = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        command = [sys.executable, __file__, "worker", str(index)]
        env = {**os.environ, "TF_CONFIG": config}
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    first, _ = (one.communicate()[0] for one in running)
    return json.loads(first.splitlines()[-1])


def worker(index: int) -> None:
    """Train as one of two workers, once for each kind of delay, and print the results of the profiles."""
    from infeed.components.feed.options import WorkerContext
    from infeed.components.trainer.distribution import make_strategy

    strategy = make_strategy("multi_worker_mirrored", WorkerContext(index, 2))
    with tempfile.TemporaryDirectory() as folder:
        batches = _batches(folder, WORKERS_BATCH // 2)
    told = {late: _trained(strategy, batches, delays[index]) for late, delays in DELAYS.items()}
    print(json.dumps(told), flush=True)
    os._exit(0)  # a normal exit would wait for the iterators over late batches


def _trained(strategy: Any, batches: Any, delay: float) -> Any:
    """Return the seconds of a step, and the shares of waiting in percent, over the judged epochs."""
    from infeed.components.dataset.input_profile import InputProfile, PlanSummary
    from infeed.components.trainer import loop

    model, fed = _model(strategy), batches.map(_late(delay)) if delay else batches
    schedule = loop.Schedule(batch_size=WORKERS_BATCH, steps_per_epoch=DELAYED_STEPS, steps_per_call=1, epochs=EPOCHS)
    fitted = loop.fit(model, strategy, fed, batches.take(1), schedule)
    ceiling = loop.measure_ceiling(fitted.train_steps, fitted.meter, strategy, next(iter(batches)), WORKERS_BATCH)
    profile = InputProfile(
        strategy="multi_worker_mirrored", replicas=2, hosts=2, batch_size=WORKERS_BATCH, steps_per_epoch=DELAYED_STEPS,
        epochs=fitted.epochs, ceiling=ceiling, plan=PlanSummary("columns", "", ()), bytes=0,
    )  # fmt: skip
    lasted = sum(epoch.seconds for epoch in profile.steady_epochs)
    return {
        "step": lasted / sum(epoch.steps for epoch in profile.steady_epochs),
        "judged": 100 * profile.wait_fraction(profile.steady_epochs),
        "workers": [100 * one / lasted for one in profile.workers_waited],
    }


def _late(delay: float) -> Callable[..., Any]:
    """Return a function that delays each batch by some seconds."""
    import tensorflow as tf

    def sleep(label: Any) -> Any:
        time.sleep(delay)
        return label

    def late(features: Any, label: Any) -> Any:
        return features, tf.ensure_shape(tf.numpy_function(sleep, [label], label.dtype), label.shape)

    return late


if __name__ == "__main__":
    if sys.argv[1:2] == ["steps"]:
        print(steps(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])).to_json())
    elif sys.argv[1:2] == ["worker"]:
        worker(int(sys.argv[2]))
    else:
        main()
