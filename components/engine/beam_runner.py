"""Selection of the Beam runner by its short name, with a local runner as the default.

In Beam 2.68, DirectRunner became Prism, a program that is downloaded during a run and that reports errors as text.
FnApiRunner runs in this process, and is what DirectRunner was before.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from infeed.components.base.errors import InfeedError, infeed_error
from infeed.components.seams import beam as beam_seam

LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
BEAM_RUNNERS = {
    "direct": LOCAL_RUNNER,
    "prism": "PrismRunner",
    "dask": "apache_beam.runners.dask.dask_runner.DaskRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
}
_PORTABLE = {"portablerunner", "prismrunner", "flinkrunner", "sparkrunner"}
_A_MONTH = 30 * 24 * 3600  # seconds
_WORKER_TIMEOUT = 30 * 60  # seconds: machines that start with a large image take ten minutes and more
# Messages of Beam's job service of Flink after a worker process or a TaskManager has ended.
_LOST = ("CANCELLED: client cancelled", "Recovery is suppressed by NoRestartBackoffTimeStrategy")
_LOCAL = {"directrunner", "switchingdirectrunner", "bundlebaseddirectrunner", "fnapirunner"}


@dataclass(frozen=True)
class Named:
    """Runner and local workers in Beam's options.

    `worker_timeout` is an option of this package: seconds that a running job may have no worker. 0 waits forever.
    """

    runner: str = ""  # name or class; empty if none is given
    workers: int | None = None  # `--direct_num_workers` of a local runner; None for 0, which leaves the number open
    worker_timeout: int = _WORKER_TIMEOUT
    pool: str = ""  # address of external workers, `--environment_config`; empty if the runner starts workers itself

    @classmethod
    def of(cls, options: Sequence[str]) -> Named:
        """Parse Beam's options. Raise InfeedError unless workers and timeout are non-negative integers."""
        found, _ = _parsed(options)
        workers = _whole(
            "--direct_num_workers", found.direct_num_workers, "use a number of processes, or 0 for automatic"
        )
        timeout = _whole("--worker_timeout", found.worker_timeout, "use a number of seconds, or 0 to wait forever")
        pool = found.environment_config if found.environment_type.upper() == "EXTERNAL" else ""
        return cls(found.runner, workers or None, timeout, pool)

    @property
    def short_name(self) -> str:
        return self.runner.rpartition(".")[2]

    @property
    def place(self) -> str:
        """Location of the runner or its worker pool, for errors."""
        return f"worker pool at {self.pool}" if self.pool else f"--runner={self.runner}"

    @property
    def logs(self) -> str:
        return "the log of the worker pool" if self.pool else "the logs of the workers"

    @property
    def is_cluster(self) -> bool:
        """Whether the options set a runner that is not local. Classes outside Beam count as local."""
        package, _, name = self.runner.rpartition(".")
        is_local = name.lower() in _LOCAL and (not package or package.startswith("apache_beam."))
        return bool(self.runner) and not is_local


def _whole(option: str, value: str, do: str) -> int:
    if not value.isdigit():
        raise InfeedError(f"{option} is {value}", where="Beam's options", do=do)
    return int(value)


@contextmanager
def telling_failures(named: Named) -> Iterator[None]:
    """Convert a pipeline failure in the body to an InfeedError, without Beam's wrapping.

    This covers unreachable remote runners and failed workers. Other errors of a local runner are raised unchanged,
    because the code causes them.
    """
    try:
        yield
    except Exception as error:  # the class depends on the runner
        if ours := infeed_error(error):
            raise ours from None
        if not named.is_cluster:
            raise
        details = getattr(error, "details", None)  # method of gRPC errors
        said = (details() if callable(details) else str(error)) or ""
        # Without the frames of a Java stack trace, the last line is the innermost cause.
        lines = [line for raw in said.splitlines() if (line := raw.strip()) and not line.startswith("at ")]
        reason = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
        if lost := next((one for one in _LOST if one in said), ""):
            raise _lost_worker(lost, named) from error
        do = (
            "check Beam's options and that their addresses are reachable. Read the logs of the runner and of its "
            "workers, which need this package and the same Python version"
        )
        what = f"the Beam runner {named.short_name} failed: {reason}"
        raise InfeedError(what, where=f"--runner={named.runner}", do=do) from error


def _lost_worker(reason: str, named: Named) -> InfeedError:
    do = (
        f"read {named.logs}, which show why the worker ended. Flink continues after a lost worker only if its "
        "configuration sets restart-strategy.type, such as fixed-delay. Give each TaskManager a separate "
        "worker pool"
    )
    return InfeedError(f"the Beam runner {named.short_name} lost a worker: {reason}", where=named.place, do=do)


def local_runner() -> AbstractContextManager[None]:
    """Make `LOCAL_RUNNER` the default of pipelines created in the body."""
    return beam_seam.default_runner(LOCAL_RUNNER)


def pipeline_on(runner: str, options: Sequence[str]) -> Any:
    """Create a Beam pipeline on a runner of `BEAM_RUNNERS` or on a class, with Beam's `options`."""
    import apache_beam as beam

    name = BEAM_RUNNERS.get(runner, runner)
    _, options = _parsed(options)
    if name == BEAM_RUNNERS["dask"]:  # its client rejects options of others, such as TFX's labels
        words = " ".join(options).replace(" --", "\n--").splitlines()
        options = [word.replace(" ", "=", 1) for word in words if word.startswith("--dask_")]
        if not any("dask_npartitions" in one or "dask_partition_size" in one for one in options):
            options.append("--dask_partition_size=1")  # by default 128 tasks of some 64 MB go to one worker
    elif Named(name).short_name.lower() in _PORTABLE:
        options = _without_deadline(options)
    # Not as the option --runner, because the Dask runner passes every option to its client, which rejects that one.
    return beam.Pipeline(name, argv=list(options))


def pipeline_of(options: Sequence[str]) -> Any:
    """Create a Beam pipeline on the runner in Beam's `options`, or on `LOCAL_RUNNER`."""
    named, rest = _parsed(options)
    return pipeline_on(named.runner or LOCAL_RUNNER, rest)


def without_ours(options: Sequence[str]) -> list[str]:
    """Return the options without those of this package, because Beam would warn of unknown options."""
    named, rest = _parsed(options)
    return [*([f"--runner={named.runner}"] if named.runner else []), *rest]


def _parsed(options: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options for `Named`, and the remaining options for Beam."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner", default="")
    parser.add_argument("--worker_timeout", "--worker-timeout", default=str(_WORKER_TIMEOUT))
    found, rest = parser.parse_known_args(list(options))
    # Beam needs the following options too, so they stay in `rest`; those above are removed from it.
    parser.add_argument("--direct_num_workers", default="0")
    parser.add_argument("--environment_type", "--environment-type", default="")
    parser.add_argument("--environment_config", "--environment-config", default="")
    return parser.parse_known_args(rest, found)[0], rest


def _without_deadline(options: Sequence[str]) -> list[str]:
    """Add a long `--job_server_timeout`, unless the options set one, and wait 60 s for the server of `--job_endpoint`.

    Beam applies the request timeout, 60 or 300 seconds, to the streams of a job's state and messages. On servers that
    identify a job by its preparation id (Prism, Beam's job service), longer jobs fail: apache/beam#35867.
    """
    import grpc

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--job_server_timeout", "--job-server-timeout")
    parser.add_argument("--job_endpoint", "--job-endpoint")
    found, _ = parser.parse_known_args(list(options))
    if found.job_server_timeout:
        return list(options)
    if found.job_endpoint and found.job_endpoint != "embed":
        with grpc.insecure_channel(found.job_endpoint) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
    return [*options, f"--job_server_timeout={_A_MONTH}"]


def container_options(given: Sequence[str], image: str) -> tuple[str, ...]:
    """Return Beam's options for steps that run in containers of `image`, with `LOCAL_RUNNER` unless a runner is set.

    TFX does not package sources for workers that run an image.
    """
    if Named.of(given).runner:
        return tuple(given)
    return (f"--runner={LOCAL_RUNNER}", f"--sdk_container_image={image}", *given)
