from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.job.compiled import read_tasks
from infeed.pipelines.rehearse.launch import Faults, has_begun


def test_they_are_read_from_the_command_line() -> None:
    faults = Faults.parse(["Trainer:2", "Pusher"], ["Transform"])
    assert faults == Faults({"Trainer": 2, "Pusher": 1, "Transform": 1}, frozenset({"Transform"}))


@pytest.mark.parametrize("count", ["0", "two", "-1", ""])
def test_a_number_of_attempts_is_one(count: str) -> None:
    with pytest.raises(InfeedError, match="is not a number of attempts"):
        Faults.parse([f"Trainer:{count}"], [])


def test_only_steps_that_run_something_can_fail(jobs: ModuleType) -> None:
    tasks = read_tasks(jobs.job({"learn": jobs.step(retries=1), "push": jobs.step()}).spec)
    Faults.parse(["push"], ["learn"]).check(tasks)
    with pytest.raises(InfeedError, match=r"no step 'Learn' to fail\n.*learn, push"):
        Faults.parse(["Learn"], []).check(tasks)
    with pytest.raises(InfeedError, match="push is not retried"):
        Faults.parse([], ["push"]).check(tasks)


def test_a_step_has_begun_once_there_is_a_file(tmp_path: Path) -> None:
    output = tmp_path / "model"
    assert not has_begun([str(output)])
    (output / "variables").mkdir(parents=True)
    assert not has_begun([str(output)])
    (output / "variables" / "part").touch()
    assert has_begun([str(output)])
    assert has_begun([str(output / "variables" / "part")])  # some components write a file where others write a folder
