"""What is told of a program's imports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # the scripts import one another by name

import imports


def test_the_packages_that_take_most_are_named_with_their_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "__init__.py").write_text("import time; time.sleep(0.1)\n")
    (tmp_path / "slow" / "slower.py").write_text("import time; time.sleep(0.2)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = imports.packages("import slow.slower")
    assert next(iter(found)) == "slow"
    assert found["slow"] >= 0.3  # those of the modules below it, too


def test_every_command_is_measured_beside_the_interpreter() -> None:
    starts = {start.name: start for start in imports.commands()}
    assert {"python", "run", "ingest", "doctor"} <= set(starts)
    assert "['infeed', 'run', '--help']" in starts["run"].ours


@pytest.mark.tfx
def test_every_node_is_measured_beside_that_of_tfx() -> None:
    starts = {start.name: start for start in imports.nodes()}
    assert starts["StatisticsGen"].theirs == "from tfx.components.statistics_gen.executor import Executor"
    assert starts["StatisticsGen"].ours == "from infeed.components.statistics.component import StatisticsExecutor"
    assert starts["InputReport"].theirs == ""  # there is none
