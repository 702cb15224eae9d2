"""Real runners for tests, from Beam's own wheel and Dask's: what Flink, Spark and Dataflow do with Python workers."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ports import held_ports

COUNTING = "beam_clusters.CountingRunner"  # `--runner` of pipelines that are to be counted
# The service tells workers its host's full name, which in a container may lead nowhere.
_SERVICE = "import runpy, socket; socket.getfqdn = lambda *_: 'localhost'; "
_SERVICE += "runpy.run_module('{}', run_name='__main__', alter_sys=True)"
# `--runner` that works on several pieces at once in this process, and carries only small elements.
THREADED = "beam_clusters.ThreadedRunner"
MOST_BYTES = 1_000  # of an element, or of all values of a key, which Flink makes one element of
COUNTS = "INFEED_TEST_PIPELINES"  # variable: the file to which CountingRunner adds a line for each pipeline


@contextmanager
def portable(folder: Path, *prefix: str, environment: Mapping[str, str] = os.environ) -> Iterator[list[str]]:
    """Start Beam's job service and a pool of external workers; yield the options that name them.

    Workers are children of the pool, and have the paths of this process, so that they find the tests.

    Args:
      folder: for logs.
      prefix: words before the pool's command, such as `strace` and its options.
      environment: variables of the service, the pool and the workers.
    """
    service = "apache_beam.runners.portability.local_job_service_main"
    workers = "apache_beam.runners.worker.worker_pool_main"
    functions = str(Path(__file__).parent / "components" / "engine")  # of tests that may come later
    paths = [environment.get("PYTHONPATH"), functions, *sys.path]
    environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    started = []
    with ExitStack() as held:
        job, pool = held.enter_context(held_ports(2))
        held.callback(lambda: [_kill_session(process) for process in started])
        commands = [
            [sys.executable, "-c", _SERVICE.format(service), "--port", str(job)],
            [*prefix, sys.executable, "-m", workers, "--service_port", str(pool)],
        ]
        for number, command in enumerate(commands):
            with (folder / f"beam-{number}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
                )
        for port in (job, pool):
            _wait_for(port)
        yield [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{job}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool}",
        ]


@contextmanager
def dask(processes: int = 2) -> Iterator[list[str]]:
    """Start a Dask cluster of processes; yield the options that name it."""
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None) as cluster:  # type: ignore[no-untyped-call]
        yield [
            "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
            f"--dask_client_address={cluster.scheduler_address}",
            "--dask_partition_size=1",
        ]
        for client in tuple(Client._instances):  # type: ignore[attr-defined]
            client.close()  # Beam leaves open one of each pipeline, which would complain that the cluster is gone


@contextmanager
def spark(folder: Path, processes: int = 2) -> Iterator[list[str]]:
    """Name a Spark cluster of processes, which the first pipeline starts; end it afterwards.

    Args:
      folder: for logs and temporary files of the executors.
    """
    from pyspark import SparkContext

    submit = [f"--master local-cluster[{processes},1,1024]", "--conf spark.ui.enabled=false"]
    submit.append(f"--conf spark.executorEnv.PYTHONPATH={os.pathsep.join(filter(None, sys.path))}")
    given = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": " ".join([*submit, "pyspark-shell"]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder),
    }
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield ["--runner=beam_pyspark_runner.pyspark_runner.PySparkRunner"]
    finally:
        os.environ.clear()
        os.environ.update(before)
        if context := SparkContext._active_spark_context:
            gateway = context._gateway
            context.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()  # Java ends with it
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None


def __getattr__(name: str) -> Any:
    """`CountingRunner` and `ThreadedRunner`, made when they are asked for: Beam takes seconds to load."""
    if name not in ("CountingRunner", "ThreadedRunner"):
        raise AttributeError(name)
    from apache_beam.options.pipeline_options import DirectOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    class ThreadedRunner(FnApiRunner):  # type: ignore[misc]
        """What Spark, Flink and Dataflow do with several slots of one process. Large elements fail the job."""

        def run_pipeline(self, pipeline: Any, options: Any) -> Any:
            _weigh_all(pipeline)
            direct = options.view_as(DirectOptions)
            direct.direct_num_workers, direct.direct_running_mode = 4, "multi_threading"
            return super().run_pipeline(pipeline, options)

    class CountingRunner(FnApiRunner):  # type: ignore[misc]
        def run_pipeline(self, *arguments: Any, **named: Any) -> Any:
            with open(os.environ[COUNTS], "a") as file:
                file.write("pipeline\n")
            return super().run_pipeline(*arguments, **named)

    return {"CountingRunner": CountingRunner, "ThreadedRunner": ThreadedRunner}[name]


def _weigh_all(pipeline: Any) -> None:
    """Weigh the elements between all steps of a pipeline."""
    import apache_beam as beam
    from apache_beam.pipeline import PipelineVisitor

    class Steps(PipelineVisitor):  # type: ignore[misc]
        def __init__(self) -> None:
            self.steps = list[Any]()

        def visit_transform(self, applied: Any) -> None:
            self.steps.append(applied)

    pipeline.visit(found := Steps())
    for number, step in enumerate(found.steps):
        for output in step.outputs.values():
            output | f"Weigh {number}" >> beam.Map(weigh, step.full_label)


def weigh(element: Any, step: str) -> None:
    grouped = isinstance(element, tuple) and not isinstance(element[-1], bytes | str | tuple)
    values = list(element[-1]) if grouped and hasattr(element[-1], "__iter__") else element
    size = len(pickle.dumps(values))
    assert size <= MOST_BYTES, f"an element of {step} takes {size:,} bytes"


def _wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on port {port} after a minute")


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
