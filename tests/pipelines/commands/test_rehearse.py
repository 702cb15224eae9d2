from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infeed.pipelines.cli import main


def rehearse(job: Path, *words: object, columns: int = 100) -> Result:
    command = ["rehearse", str(job), "--root", str(job.parent / "root"), *map(str, words)]
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, command, catch_exceptions=False)


def written(jobs: ModuleType, folder: Path, learn: str) -> Path:
    """learn -> push, as a file."""
    learner = jobs.step(learn, gives=["model"], retries=1)
    pushed = {"pushed": {"schemaTitle": "tfx.PushedModel"}}
    pusher = jobs.step(
        "write('pushed', '', pushed=1, pushed_destination='/srv/7')", takes={"m": "learn.model"}, gives=pushed
    )
    path = folder / "job.json"
    path.write_text(json.dumps({"pipelineSpec": jobs.job({"learn": learner, "push": pusher}).spec}))
    return path


@pytest.mark.slow
def test_each_change_is_a_line_and_the_times_are_a_table_at_the_end(jobs: ModuleType, tmp_path: Path) -> None:
    done = rehearse(written(jobs, tmp_path, "write('model', '')"))
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert [line[:2] for line in lines[:4]] == [
        ["learn", "running"],
        ["learn", "done"],
        ["push", "running"],
        ["push", "done"],
    ]
    assert lines[4] == ["step", "state", "time", "share"]
    assert [line[:3] for line in lines[5:7]] == [["learn", "✓", "done"], ["push", "✓", "done"]]
    assert lines[7][0] == "total"
    assert ["pushed", "to", "/srv/7"] in lines


@pytest.mark.slow
def test_a_failure_shows_the_end_of_the_steps_log_and_where_the_whole_is(jobs: ModuleType, tmp_path: Path) -> None:
    done = rehearse(written(jobs, tmp_path, "print('epoch 1'); raise ValueError('no model today')"))
    assert done.exit_code == 1
    told = done.stdout[done.stdout.index("learn failed") :]
    assert "ValueError: no model today (exit status 1)" in told
    assert "  epoch 1\n" in told
    [log] = (tmp_path / "root" / "logs").glob("*/learn.log")
    assert log.name in told


def test_a_failure_inside_an_image_says_how_to_look_into_it(jobs: ModuleType, tmp_path: Path, engines: Any) -> None:
    engines.add("docker", '[ "$1" != run ]')
    done = rehearse(written(jobs, tmp_path, ""), "--image", "taxi:1")
    assert done.exit_code == 1
    assert "doctor --image taxi:1" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 60])
def test_it_fits_a_narrow_terminal(jobs: ModuleType, tmp_path: Path, columns: int) -> None:
    done = rehearse(written(jobs, tmp_path, "write('model', '')"), "--fail", "learn", columns=columns)
    table = done.stdout[done.stdout.index("step ") : done.stdout.index("total")]
    assert max(len(line) for line in table.splitlines()) <= columns
    assert "attempt 2 of 2" in done.stdout


@pytest.mark.slow
def test_json_is_the_whole_of_the_output(jobs: ModuleType, tmp_path: Path) -> None:
    told = json.loads(rehearse(written(jobs, tmp_path, "write('model', '')"), "--json").stdout)
    assert told["succeeded"]
    assert [node["state"] for node in told["report"]["nodes"]] == ["done", "done"]
    assert told["outputs"]["push"]["pushed"][0]["metadata"]["pushed_destination"] == "/srv/7"


def started(jobs: ModuleType, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A rehearsal and the process of its first step, which would go on for a minute."""
    pid = folder / "pid"
    job = written(jobs, folder, f"open({str(pid)!r}, 'w').write(str(os.getpid()))\nimport time; time.sleep(60)")
    command = [Path(sys.executable).with_name("infeed"), "rehearse", job, "--root", folder / "root"]
    rehearsal = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not pid.exists() or not pid.read_text():
        assert rehearsal.poll() is None, rehearsal.communicate()[1]
        time.sleep(0.05)
    return rehearsal, int(pid.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_step_as_well(jobs: ModuleType, tmp_path: Path, how: signal.Signals) -> None:
    rehearsal, step = started(jobs, tmp_path)
    rehearsal.send_signal(how)
    assert rehearsal.communicate()[1].startswith("interrupted: ")
    assert rehearsal.returncode == 130
    assert not Path(f"/proc/{step}").exists()


@pytest.mark.slow
def test_a_step_that_outlives_its_rehearsal_keeps_the_next_one_out(jobs: ModuleType, tmp_path: Path) -> None:
    rehearsal, step = started(jobs, tmp_path)
    rehearsal.kill()
    rehearsal.wait()
    job = written(jobs, tmp_path, "write('model', '')")
    refused = rehearse(job)
    assert refused.exit_code == 2
    assert f"a step of a killed rehearsal\n  where: {tmp_path}" in refused.stderr
    assert f"kill -- -{step}" in refused.stderr
    os.killpg(step, signal.SIGKILL)
    until = time.monotonic() + 60
    while (again := rehearse(job)).exit_code == 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert again.exit_code == 0, again.stderr


def test_mistakes_are_told_before_anything_runs(jobs: ModuleType, tmp_path: Path) -> None:
    job = written(jobs, tmp_path, "")
    for words, message in [
        (("--set", "rate=1"), "unknown parameter 'rate'"),
        (("--fail", "Trainer"), "there is no step 'Trainer' to fail"),
        (("--map", "gs://a"), "gs://a"),
    ]:
        done = rehearse(job, *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_file_that_is_no_job_is_told(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    assert "not a compiled pipeline" in rehearse(tmp_path / "job.json").stderr
