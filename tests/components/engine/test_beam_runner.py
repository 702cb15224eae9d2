from __future__ import annotations

import importlib
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine.beam_runner import (
    LOCAL_RUNNER,
    Named,
    container_options,
    local_runner,
    pipeline_of,
    pipeline_on,
    telling_failures,
)

pytestmark = pytest.mark.stack


@pytest.mark.tfx
def test_a_pipeline_that_names_no_runner_takes_the_local_one(beam_runners: list[str]) -> None:
    import apache_beam as beam

    with local_runner(), beam.Pipeline(argv=[]) as pipeline:
        pipeline | beam.Create([1])
    with local_runner(), pytest.raises(ZeroDivisionError):
        1 / 0  # noqa: B018 - whatever ends the run
    assert beam_runners == ["FnApiRunner"]
    assert beam.Pipeline().runner.__class__.__name__ != "FnApiRunner"  # outside, Beam's default is as it was


@pytest.mark.tfx
def test_a_pipeline_that_names_a_runner_keeps_it() -> None:
    import apache_beam as beam

    with local_runner():
        named = beam.Pipeline(argv=["--runner=BundleBasedDirectRunner"])
        prism = beam.Pipeline("PrismRunner")
    assert [type(one.runner).__name__ for one in (named, prism)] == ["BundleBasedDirectRunner", "PrismRunner"]


@pytest.mark.tfx
@pytest.mark.parametrize(
    ("name", "expected"), [("direct", "FnApiRunner"), (LOCAL_RUNNER, "FnApiRunner"), ("prism", "PrismRunner")]
)
def test_a_runner_is_taken_by_its_short_name_or_its_own(name: str, expected: str) -> None:
    assert type(pipeline_on(name, []).runner).__name__ == expected


@pytest.mark.tfx
@pytest.mark.parametrize("named", ["example_gen.executor.Executor", "transform.executor.TransformExecutor"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "FnApiRunner"),
        (["--direct_num_workers=2", "--sdk_container_image=x"], "FnApiRunner"),
        (["--runner=PrismRunner", "--sdk_container_image=x"], "PrismRunner"),
    ],
)
def test_our_beam_components_take_the_local_runner_in_anybodys_pipeline(
    options: list[str], expected: str, named: str
) -> None:
    module, _, name = f"infeed.components.{named}".rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    executor: Any = kind(kind.Context(beam_pipeline_args=options))
    assert type(executor._make_beam_pipeline().runner).__name__ == expected


@pytest.mark.tfx
def test_a_pipeline_that_somebody_makes_for_the_executor_is_taken() -> None:
    import apache_beam as beam

    from infeed.components.example_gen.executor import Executor

    given = beam.Pipeline()
    assert Executor(Executor.Context(make_beam_pipeline_fn=lambda: given))._make_beam_pipeline() is given


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], (f"--runner={LOCAL_RUNNER}", "--sdk_container_image=here/image:1")),
        (["--a=1"], (f"--runner={LOCAL_RUNNER}", "--sdk_container_image=here/image:1", "--a=1")),
        (["--a=1", "--runner=FlinkRunner"], ("--a=1", "--runner=FlinkRunner")),
        (["--runner", "FlinkRunner"], ("--runner", "FlinkRunner")),
    ],
)
def test_options_for_containers_name_a_runner(given: list[str], expected: tuple[str, ...]) -> None:
    assert container_options(given, "here/image:1") == expected


class UnreachableError(Exception):
    """As those of gRPC: its text is a listing, and `details` tells what happened."""

    def details(self) -> str:
        return "Deadline Exceeded"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnreachableError("<a\n\tlisting\n>"), "Deadline Exceeded"),
        (TimeoutError(), "TimeoutError"),
        (OSError("gone"), "gone"),
    ],
)
def test_what_a_cluster_fails_of_names_the_runner(error: Exception, told: str) -> None:
    with pytest.raises(InfeedError, match="PortableRunner failed") as raised, telling_failures(Named("PortableRunner")):
        raise error
    assert told in raised.value.what
    assert raised.value.where == "--runner=PortableRunner"
    assert raised.value.__cause__ is error


LOST = (
    "Pipeline BeamApp-root-1127 failed in state FAILED: org.apache.beam.vendor.grpc.v1p69p0.io.grpc."
    "StatusRuntimeException: CANCELLED: client cancelled",
    "Pipeline BeamApp-root-1127 failed in state FAILED: org.apache.flink.runtime.JobException: "
    "Recovery is suppressed by NoRestartBackoffTimeStrategy\n\tat org.apache.flink.runtime.executiongraph.failover",
)


@pytest.mark.parametrize("said", LOST)
@pytest.mark.parametrize(
    ("named", "where", "log"),
    [
        (Named("FlinkRunner", pool="host:1"), "worker pool at host:1", "the log of the worker pool"),
        (Named("FlinkRunner"), "--runner=FlinkRunner", "the logs of the workers"),
    ],
)
def test_a_lost_worker_is_named_with_what_lets_the_runner_go_on(said: str, named: Named, where: str, log: str) -> None:
    with pytest.raises(InfeedError, match="FlinkRunner lost a worker") as raised, telling_failures(named):
        raise RuntimeError(said)
    assert raised.value.where == where
    assert log in raised.value.do
    assert "restart-strategy.type" in raised.value.do


def test_what_a_local_pipeline_fails_of_is_an_error_of_the_code() -> None:
    for runner in ("", LOCAL_RUNNER):
        with pytest.raises(ZeroDivisionError), telling_failures(Named(runner)):
            raise ZeroDivisionError


def test_an_error_of_a_worker_is_raised_without_what_beam_wraps_round_it() -> None:
    ours = InfeedError("no rows", where="a.csv", do="add some")
    with pytest.raises(InfeedError) as raised, telling_failures(Named("FlinkRunner")):
        raise RuntimeError(f"Pipeline failed in state FAILED: infeed.InfeedError: {ours} [while running 'Spill']")
    assert (raised.value.what, raised.value.where, raised.value.do) == (ours.what, ours.where, ours.do)


@pytest.mark.tfx
@pytest.mark.parametrize(
    ("runner", "options", "seconds"),
    [
        ("prism", [], 30 * 24 * 3600),
        ("PortableRunner", ["--job_endpoint=embed"], 30 * 24 * 3600),
        ("PortableRunner", ["--job_endpoint=embed", "--job_server_timeout=5"], 5),
        ("direct", ["--job_server_timeout=7"], 7),
    ],
)
def test_a_job_server_has_no_deadline_for_a_job(runner: str, options: list[str], seconds: int) -> None:
    from apache_beam.options.pipeline_options import PortableOptions

    found = pipeline_on(runner, options).options.view_as(PortableOptions)
    assert found.job_server_timeout == seconds


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], Named()),
        (["--worker_timeout=60", "--runner=FlinkRunner"], Named("FlinkRunner", worker_timeout=60)),
        (["--worker-timeout", "0"], Named(worker_timeout=0)),
        (["--environment_type=EXTERNAL", "--environment_config=host:1"], Named(pool="host:1")),
        (["--environment_type=DOCKER", "--environment_config=image"], Named()),
    ],
)
def test_the_timeout_and_the_pool_of_workers_are_read_of_beams_options(options: list[str], expected: Named) -> None:
    assert Named.of(options) == expected


@pytest.mark.parametrize("value", ["soon", "-1", "1.5"])
def test_a_timeout_is_a_number_of_seconds(value: str) -> None:
    with pytest.raises(InfeedError, match=f"--worker_timeout is {value}") as raised:
        Named.of([f"--worker_timeout={value}"])
    assert raised.value.where == "Beam's options"


@pytest.mark.tfx
def test_tfx_does_not_see_an_option_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    from infeed.components.transform.executor import TransformExecutor

    context = TransformExecutor.Context(beam_pipeline_args=["--worker_timeout=60", "--sdk_container_image=x"])
    assert TransformExecutor(context).make_pipeline().options.get_all_options()["sdk_container_image"] == "x"
    assert "worker_timeout" not in caplog.text


@pytest.mark.tfx
@pytest.mark.parametrize("make", [pipeline_of, lambda options: pipeline_on("direct", options)])
def test_beam_does_not_see_an_option_of_ours(make: Any) -> None:
    made = make(["--worker_timeout=60", "--job_name=mine"])
    assert made.options.get_all_options()["job_name"] == "mine"
    assert "worker_timeout" not in made.options.get_all_options(retain_unknown_options=True)
