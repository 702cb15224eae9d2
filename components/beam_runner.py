"""Choose the Beam runner by its short name, and default to a local runner.

Beam's own default, DirectRunner, became Prism in 2.68: a program that it downloads in the middle of a run, and that
hands on errors as text. FnApiRunner works in this process, and is what DirectRunner was until then.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from infeed.components.errors import InfeedError, infeed_error

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
_LOCAL = {"directrunner", "switchingdirectrunner", "bundlebaseddirectrunner", "fnapirunner"}


@dataclass(frozen=True)
class Named:
    """Runner and local workers that Beam's options name.

    Attributes:
      runner: name or class; empty where none is named.
      workers: `--direct_num_workers` of a local runner; None where it leaves the number open, as 0 does.
    """

    runner: str = ""
    workers: int | None = None

    @classmethod
    def of(cls, options: Sequence[str]) -> Named:
        """
        Raises:
          InfeedError: the number of workers is no whole number from 0 on.
        """
        found, _ = _parsed(options)
        if not found.direct_num_workers.isdigit():
            do = "give a number of processes, or 0 for as many as pay"
            raise InfeedError(f"--direct_num_workers is {found.direct_num_workers}", where="Beam's options", do=do)
        return cls(found.runner, int(found.direct_num_workers) or None)

    @property
    def short_name(self) -> str:
        return self.runner.rpartition(".")[2]

    @property
    def is_local(self) -> bool:
        """Whether it works on this machine alone; a class of somebody else's does not, whatever its name."""
        package, _, name = self.runner.rpartition(".")
        return name.lower() in _LOCAL and (not package or package.startswith("apache_beam."))

    @property
    def is_cluster(self) -> bool:
        """Whether a runner is named that is not local."""
        return bool(self.runner) and not self.is_local


@contextmanager
def telling_failures(runner: str) -> Iterator[None]:
    """Inside, a pipeline runs: what it fails of is an InfeedError, without what Beam wraps round it.

    Args:
      runner: name or class. What a local one fails of and is no InfeedError stays as it is: it is an error of the code
        that it runs. Another one may be out of reach, or its workers may not be able to work.

    Raises:
      InfeedError: one was raised on a worker, or a runner that is not local failed.
    """
    try:
        yield
    except Exception as error:  # which of them, depends on the runner
        ours = infeed_error(error)
        if ours is None and not Named(runner).is_cluster:
            raise
        raise ours or _failure(error, runner) from (None if ours else error)


def _failure(error: Exception, runner: str) -> InfeedError:
    details = getattr(error, "details", None)  # of an error of gRPC
    said = (details() if callable(details) else str(error)) or ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    do = (
        "check Beam's options and that what they name can be reached from here; read the logs of the runner and of its "
        "workers, which need this package and the same Python"
    )
    return InfeedError(
        f"the Beam runner {Named(runner).short_name} failed: {reason}", where=f"--runner={runner}", do=do
    )


@contextmanager
def local_runner() -> Iterator[None]:
    """A pipeline that is made inside and names no runner takes `LOCAL_RUNNER`.

    By Beam's default, not by an option: for any option that a component is given, TFX packs its own sources anew, which
    takes two seconds for each node.
    """
    from apache_beam.options.pipeline_options import StandardOptions  # takes seconds

    before = StandardOptions.DEFAULT_RUNNER
    StandardOptions.DEFAULT_RUNNER = LOCAL_RUNNER
    try:
        yield
    finally:
        StandardOptions.DEFAULT_RUNNER = before


def pipeline_on(runner: str, options: Sequence[str]) -> Any:
    """A Beam pipeline on a runner of `BEAM_RUNNERS`, or of a class's full name, with Beam's `options`."""
    import apache_beam as beam

    name = BEAM_RUNNERS.get(runner, runner)
    if name == BEAM_RUNNERS["dask"]:
        options = _dask_options(options)
    elif Named(name).short_name.lower() in _PORTABLE:
        options = _without_deadline(options)
    # Not as the option --runner: the Dask runner hands every option it finds to its client, which stops at that one.
    return beam.Pipeline(name, argv=list(options))


def pipeline_of(options: Sequence[str]) -> Any:
    """A Beam pipeline on the runner that Beam's `options` name, or on `LOCAL_RUNNER`."""
    named, rest = _parsed(options)
    return pipeline_on(named.runner or LOCAL_RUNNER, rest)


def _parsed(options: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """`runner` and `direct_num_workers`, and the options without the runner."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner", default="")
    runner, rest = parser.parse_known_args(list(options))
    parser.add_argument("--direct_num_workers", default="0")
    return parser.parse_known_args(rest, runner)[0], rest


def _dask_options(options: Sequence[str]) -> list[str]:
    """Those of the Dask runner, whose client stops at any other, such as the labels that TFX adds."""
    words = " ".join(options).replace(" --", "\n--").splitlines()
    found = [word.replace(" ", "=", 1) for word in words if word.startswith("--dask_")]
    if not any("dask_npartitions" in one or "dask_partition_size" in one for one in found):
        found.append("--dask_partition_size=1")  # else 128 tasks of some 64 MB go to one worker
    return found


def _without_deadline(options: Sequence[str]) -> list[str]:
    """Add a long `--job_server_timeout`, unless the options have one, once the job server answers.

    Beam gives the streams of a job's state and messages the timeout of a request: 60 seconds, or 300 in newer versions.
    On servers that know a job by the id of its preparation (Prism, Beam's own job service) a longer job fails:
    apache/beam#35867.

    Raises:
      grpc.FutureTimeoutError: the server of `--job_endpoint` does not answer within 60 seconds.
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
    """Beam's options for steps that run in containers of `image`: the given ones, with `LOCAL_RUNNER` if none is named.

    TFX packs no sources for workers that run an image.
    """
    if Named.of(given).runner:
        return tuple(given)
    return (f"--runner={LOCAL_RUNNER}", f"--sdk_container_image={image}", *given)
