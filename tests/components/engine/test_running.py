"""A job whose workers die as they start ends with an error, and a job whose workers answer late does not."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine import running
from infeed.components.engine.beam_runner import Named, pipeline_of
from infeed.components.engine.on_beam import OnBeam
from infeed.components.engine.running import Running, WorkerAnswer

pytestmark = [pytest.mark.tfx, pytest.mark.slow]


@pytest.fixture(scope="module")
def options(beam_clusters: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Options of a job service whose pool starts workers by another `python`, which lacks Beam."""
    folder = tmp_path_factory.mktemp("silent")
    (folder / "python").write_text("#!/bin/sh\necho No module named apache_beam >&2\nexit 1\n")
    (folder / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    with beam_clusters.portable(folder, environment=environment) as found:
        yield [*found, "--worker_timeout=2"]


def one_pass(engine: OnBeam, functions: ModuleType) -> None:
    engine.reduce(functions.square, [functions.Item(1), functions.Item(2)], functions.add)


def announced_passes(engine: OnBeam, functions: ModuleType) -> None:
    passes = [[functions.Item(number) for number in range(count)] for count in (2, 3)]
    engine.announce(passes)
    engine.reduce(functions.square, passes[0], functions.add)


def a_map(engine: OnBeam, functions: ModuleType) -> None:
    list(engine.map(functions.square, [functions.Item(1)]))


@pytest.mark.parametrize("work", [one_pass, announced_passes, a_map])
def test_workers_that_die_as_they_start_end_the_job(
    work: Callable[[OnBeam, ModuleType], None], options: list[str], functions: ModuleType, tmp_path: Path
) -> None:
    named = Named.of(options)
    began = time.monotonic()
    silent = pytest.raises(InfeedError, match="no worker has answered for 2 seconds")
    with silent as raised, OnBeam(lambda: pipeline_of(options), str(tmp_path), named) as engine:
        work(engine, functions)
    assert time.monotonic() - began < 60
    assert raised.value.where == f"worker pool at {named.pool}"
    assert named.pool.startswith("localhost:")
    assert "log of the worker pool" in raised.value.do
    assert "--worker_timeout" in raised.value.do
    assert list(tmp_path.iterdir()) == []


def test_ingest_ends_too(options: list[str], tmp_path: Path) -> None:
    from infeed.components.dataset.options import IngestOptions
    from infeed.components.dataset.splits import Buckets
    from infeed.components.example_gen import ingest
    from infeed.components.example_gen.sources.csv_files import open_csv

    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    opened = open_csv(str(tmp_path), {None: "rows.csv"}, IngestOptions())
    buckets = Buckets((("train", 1),))
    job = ingest.Job.of(
        opened, root=str(tmp_path / "out"), splits=buckets.names, buckets=buckets, options=IngestOptions()
    )
    engine = OnBeam(lambda: pipeline_of(options), job.temporary, Named.of(options))
    with pytest.raises(InfeedError, match="no worker has answered for 2 seconds"):
        ingest.ingest(opened.tasks, job, map_fn=engine.map)
    assert not (tmp_path / "out" / ".ingest").exists()


class Job:
    """A job of a runner: it ends once it is released, and counts how often it is canceled."""

    def __init__(self, *states: str) -> None:
        self.states, self.canceled, self.released = list(states), 0, False

    def run(self) -> Any:
        return self

    @property
    def state(self) -> str:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def wait_until_finish(self) -> None:
        while not self.released:
            time.sleep(0.01)

    def cancel(self) -> None:
        self.canceled += 1
        self.released = True


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_POLL", 0.01)
    monkeypatch.setattr(running, "_LOOK", 0.01)
    monkeypatch.setattr(running, "_BEAT", 0.1)


def seconds(count: float) -> Callable[[], bool]:
    """A condition that holds after some time."""
    end = time.monotonic() + count
    return lambda: time.monotonic() > end


def test_a_job_that_waits_for_machines_is_left_alone(hasty: None, tmp_path: Path) -> None:
    job = Job("PENDING")
    Running(job, Named("DataflowRunner", worker_timeout=1), WorkerAnswer(str(tmp_path))).wait(seconds(1.5))
    assert job.canceled == 0


def test_a_job_with_a_worker_at_work_may_take_as_long_as_it_likes(hasty: None, tmp_path: Path) -> None:
    job, answer = Job("RUNNING"), WorkerAnswer(str(tmp_path))
    with answer.working():
        Running(job, Named("FlinkRunner", worker_timeout=3), answer).wait(seconds(5))
    assert job.canceled == 0


def test_finished_items_are_signs_of_work(hasty: None, tmp_path: Path) -> None:
    job, answer, done = Job("RUNNING"), WorkerAnswer(str(tmp_path)), seconds(2.5)
    answer.give()

    def finishing() -> bool:
        (tmp_path / f"0-{time.monotonic_ns()}").touch()
        return done()

    Running(job, Named("FlinkRunner", worker_timeout=1), answer).wait(finishing)
    assert job.canceled == 0


def test_a_job_whose_workers_were_stopped_is_canceled(hasty: None, tmp_path: Path) -> None:
    job, answer = Job("RUNNING"), WorkerAnswer(str(tmp_path))
    with answer.working():
        pass
    with pytest.raises(InfeedError, match="no worker has finished an item or shown activity") as raised:
        Running(job, Named("FlinkRunner", worker_timeout=1, pool="host:1"), answer).wait()
    assert (raised.value.where, job.canceled) == ("worker pool at host:1", 1)
    assert "a separate pool" in raised.value.do


def test_a_job_that_is_no_longer_awaited_is_canceled(hasty: None, tmp_path: Path) -> None:
    def stop() -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    job = Job("RUNNING")
    with pytest.raises(SystemExit):
        Running(job, Named("FlinkRunner"), WorkerAnswer(str(tmp_path))).wait(stop)
    assert job.canceled == 1


def test_a_silent_job_is_canceled_and_0_waits_without_end(hasty: None, tmp_path: Path) -> None:
    job = Job("STARTING", "RUNNING")
    with pytest.raises(InfeedError, match="no worker has answered for 1 second") as raised:
        Running(job, Named("FlinkRunner", worker_timeout=1), WorkerAnswer(str(tmp_path))).wait()
    assert (raised.value.where, job.canceled) == ("--runner=FlinkRunner", 1)
    patient = Job("RUNNING")
    Running(patient, Named("FlinkRunner", worker_timeout=0), WorkerAnswer(str(tmp_path))).wait(seconds(1.5))
    assert patient.canceled == 0


def test_a_warning_comes_before_the_end(
    hasty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "_REMIND", 0.2)
    job = Job("RUNNING")
    with caplog.at_level(logging.WARNING):
        Running(job, Named("FlinkRunner", worker_timeout=60), WorkerAnswer(str(tmp_path))).wait(seconds(1))
    assert 1 <= len([one for one in caplog.records if "no worker has answered" in one.message]) <= 3
    assert job.canceled == 0


def test_the_error_of_the_pipeline_is_raised(tmp_path: Path) -> None:
    def fail() -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Running(SimpleNamespace(run=fail), Named("FlinkRunner"), WorkerAnswer(str(tmp_path))).wait()
