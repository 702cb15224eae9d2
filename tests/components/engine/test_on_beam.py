"""Through Beam's portable runner with external workers, as Flink and Spark run Python, on Dask, and on Spark itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.engine.engine import Here
from infeed.components.engine.on_beam import OnBeam
from infeed.components.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.slow]


@pytest.fixture(params=["portable", "dask", "spark"], scope="module")
def options(request: pytest.FixtureRequest, beam_clusters: ModuleType, functions: ModuleType) -> Iterator[list[str]]:
    if request.param != "dask":
        yield request.getfixturevalue(f"{request.param}_options")
    else:
        with beam_clusters.dask() as found:
            yield found


@pytest.fixture
def engine(options: list[str], tmp_path: Path) -> OnBeam:
    return OnBeam(lambda: pipeline(options), str(tmp_path), "runner")


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
