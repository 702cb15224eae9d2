"""`infeed cancel` and `infeed submit --cron`, on a server that stands in for Kubeflow Pipelines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

INFEED = Path(sys.executable).with_name("infeed")
pytestmark = pytest.mark.slow  # imports kfp


@pytest.fixture
def server(serve: Callable[..., Any]) -> Any:
    return serve({"state": "RUNNING"})


@pytest.fixture
def job(compiled_jobs: ModuleType, tmp_path: Path) -> str:
    return str(compiled_jobs.write_yaml(tmp_path / "job.yaml", compiled_jobs.spec()))


def infeed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([INFEED, *words], capture_output=True, text=True, check=False)


def test_a_run_is_cancelled(server: Any, job: str) -> None:
    started = infeed("submit", job, "--parameter", "data=x", "--host", server.url, "--json")
    run = json.loads(started.stdout)["run"]["id"]
    done = infeed("cancel", run, "--host", server.url)
    assert (done.returncode, done.stdout) == (0, f"cancelled {run}\n")
    assert server.frames[0]["history"][-2:] == ["CANCELING", "FAILED"]


def test_a_schedule_has_a_page(server: Any, job: str) -> None:
    done = infeed(
        "submit", job, "--parameter", "data=x", "--host", server.url, "--cron", "0 6 * * *", "--name", "daily"
    )
    assert done.returncode == 0
    assert done.stdout == f"schedule  daily\npage      {server.url}/#/recurringrun/details/recurring-0\n"


@pytest.mark.parametrize("words", [("--cron", "daily"), ("--cron", "0 6 * * *", "--wait")])
def test_a_wrong_schedule_is_refused_before_anything_is_sent(server: Any, job: str, words: tuple[str, ...]) -> None:
    done = infeed("submit", job, "--parameter", "data=x", "--host", server.url, *words)
    assert (done.returncode, "--cron" in done.stderr) == (2, True)
    assert server.asked == []
