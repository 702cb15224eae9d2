"""Which runner Beam takes, by a short name, or on one machine where nobody names one; said here and nowhere else.

Beam's own default, DirectRunner, became Prism in 2.68: a program that it downloads in the middle of a run, and that
hands on errors as text. FnApiRunner works in this process, and is what DirectRunner was until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
BEAM_RUNNERS = {
    "direct": LOCAL_RUNNER,
    "prism": "PrismRunner",
    "dask": "apache_beam.runners.dask.dask_runner.DaskRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
}


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

    if runner == "dask" and not any("dask_npartitions" in one or "dask_partition_size" in one for one in options):
        options = (*options, "--dask_partition_size=1")  # else 128 tasks of some 64 MB go to one worker
    # Not as the option --runner: the Dask runner hands every option it finds to its client, which stops at that one.
    return beam.Pipeline(BEAM_RUNNERS.get(runner, runner), argv=list(options))


def container_options(given: Sequence[str], image: str) -> tuple[str, ...]:
    """Beam's options for steps that run in containers of `image`: the given ones, with `LOCAL_RUNNER` if none is named.

    TFX packs no sources for workers that run an image.
    """
    if any(option == "--runner" or option.startswith("--runner=") for option in given):
        return tuple(given)
    return (f"--runner={LOCAL_RUNNER}", f"--sdk_container_image={image}", *given)
