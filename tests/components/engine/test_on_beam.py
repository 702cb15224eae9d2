"""Through Beam's portable runner with external workers, as Flink and Spark run Python, on Dask, and on Spark itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine import on_beam
from infeed.components.engine.beam_runner import Named
from infeed.components.engine.engine import Here
from infeed.components.engine.on_beam import OnBeam

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]


@pytest.fixture(
    params=["portable", *(pytest.param(name, marks=pytest.mark.image) for name in ("dask", "spark"))], scope="module"
)
def options(request: pytest.FixtureRequest, beam_clusters: ModuleType, functions: ModuleType) -> Iterator[list[str]]:
    if request.param != "dask":
        yield request.getfixturevalue(f"{request.param}_options")
    else:
        with beam_clusters.dask() as found:
            yield found


@pytest.fixture
def engine(options: list[str], tmp_path: Path) -> OnBeam:
    return OnBeam(lambda: pipeline(options), str(tmp_path), Named("runner"))


def pipeline(options: list[str]) -> Any:
    import apache_beam as beam

    if "DaskRunner" in options[0]:  # it hands every option to its client, which stops at --runner
        return beam.Pipeline(options[0].partition("=")[2], argv=options[1:])
    return beam.Pipeline(argv=options)


def test_the_results_are_those_of_one_process_in_its_order(
    engine: OnBeam, functions: ModuleType, tmp_path: Path
) -> None:
    items = [functions.Item(number) for number in range(40)]
    assert list(engine.map(functions.square, items)) == list(Here().map(functions.square, items))
    assert engine.reduce(functions.third, items, functions.add) == Here().reduce(functions.third, items, functions.add)
    assert list(tmp_path.iterdir()) == []  # what travelled through files is gone


def test_announced_passes_share_one_pipeline_and_give_the_results_of_one_process(
    options: list[str], functions: ModuleType, tmp_path: Path
) -> None:
    made: list[Any] = []
    engine = OnBeam(lambda: made.append(pipeline(options)) or made[-1], str(tmp_path), Named("runner"))
    first, second = ([functions.Item(number) for number in range(count)] for count in (3, 40))
    with engine:
        engine.announce([first, [], second, first])
        assert engine.reduce(functions.square, first, functions.add) == 5
        later = partial(functions.shifted, 5)  # known only now
        assert engine.reduce(later, second, functions.add) == Here().reduce(later, second, functions.add)
        assert engine.reduce(functions.third, first, functions.add) == Here().reduce(
            functions.third, first, functions.add
        )
    assert len(made) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.image
def test_an_announced_pass_that_does_not_come_is_no_obstacle(
    options: list[str], functions: ModuleType, tmp_path: Path
) -> None:
    first, second, other = ([functions.Item(number) for number in range(count)] for count in (3, 2, 4))
    with OnBeam(lambda: pipeline(options), str(tmp_path), Named("runner")) as engine:
        engine.announce([first, second])
        assert engine.reduce(functions.square, first, functions.add) == 5
        assert engine.reduce(functions.square, other, functions.add) == 14
        assert list(engine.map(functions.square, first)) == [0, 1, 4]
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_later_pass_and_between_passes_end_the_pipeline(
    options: list[str], functions: ModuleType, tmp_path: Path
) -> None:
    first, second = ([functions.Item(number) for number in range(count)] for count in (2, 5))

    def run(function: Any) -> None:
        with OnBeam(lambda: pipeline(options), str(tmp_path), Named("runner")) as engine:
            engine.announce([first, second])
            engine.reduce(functions.square, first, functions.add)
            engine.reduce(function(), second, functions.add)

    with pytest.raises(InfeedError) as raised:
        run(lambda: functions.refuse_from_three)
    assert raised.value.where in ("item 3", "item 4")
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 / 0)
    assert list(tmp_path.iterdir()) == []


def test_workers_give_up_if_the_process_that_they_wait_for_shows_no_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_beam, "_SILENCE", 0.0)
    results = on_beam._Results(str(tmp_path), b"key").of_pass(1)
    for pulse in (False, True):  # removed with the results, or no longer written
        if pulse:
            results.write_pulse(1)
        with pytest.raises(InfeedError) as raised:
            results.later()
        assert raised.value.where == f"{tmp_path}/pass-1"
    results.write_later(None)
    assert results.later() is None


def test_the_first_error_arrives_as_it_was_raised(engine: OnBeam, functions: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="3 is too large") as raised:
        list(engine.map(functions.refuse_from_three, [functions.Item(3)]))
    assert (raised.value.where, raised.value.do) == ("item 3", "give less")
    assert list(tmp_path.iterdir()) == []


def test_no_item_is_worked_on_in_this_process(engine: OnBeam, functions: ModuleType) -> None:
    assert os.getpid() not in list(engine.map(functions.process, [functions.Item(number) for number in range(4)]))


def test_items_of_a_killed_worker_are_done_again_and_the_finished_ones_are_not(
    engine: OnBeam, options: list[str], functions: ModuleType, tmp_path: Path
) -> None:
    if "DaskRunner" not in options[0]:
        pytest.skip("Beam's own job service gives up, and Spark tries the whole task again")
    (tmp_path / "marks").mkdir()
    items = [functions.Item(number, str(tmp_path / "marks")) for number in range(12)]
    assert list(engine.map(functions.mark, items)) == list(range(12))
    marks = [path.name.split("-")[0] for path in (tmp_path / "marks").iterdir()]
    assert marks.count("5") == 2
    assert len(marks) == 13


def test_nothing_gives_nothing(engine: OnBeam, functions: ModuleType) -> None:
    assert list(engine.map(functions.square, [])) == []
    with pytest.raises(ValueError, match="no items"):
        engine.reduce(functions.square, [], functions.add)


def test_a_result_that_is_not_here_asks_for_a_shared_folder(tmp_path: Path) -> None:
    from infeed.components.engine.on_beam import _Results

    with pytest.raises(InfeedError) as raised:
        _Results(str(tmp_path), b"key").read(0, 7)
    assert raised.value.where == f"{tmp_path}/0-7"


def test_signs_of_life_go_on_after_one_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_beam, "_PULSE", 0.01)
    results, written = on_beam._Results(str(tmp_path), b"key"), threading.Event()
    passes = on_beam._Passes([[1], [2]], results, Named("runner"))
    real = files.write_bytes

    def write(path: str, content: bytes) -> None:
        if content in (b"1", b"2"):
            raise OSError("the store does not answer") if content == b"1" else InfeedError("disk full", do="free some")
        real(path, content)
        written.set()

    monkeypatch.setattr(files, "write_bytes", write)
    passes._pulse.start()
    assert written.wait(30)
    passes.close()
    assert not tmp_path.exists()
