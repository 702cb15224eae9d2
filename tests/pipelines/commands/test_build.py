"""With engines that only say what a real one would; scripts/test-image.sh builds for real."""

import json
import re
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from infeed.pipelines.cli import main
from infeed.pipelines.cluster.image import build as build_context
from infeed.pipelines.cluster.image import build as build_settings
from infeed.pipelines.cluster.image.build import beam_sdk
from infeed.pipelines.commands.new import create_project

STEPS = "echo 'STEP 1/2: FROM debian'; echo 'STEP 2/2: RUN pip install --upgrade tfx'"


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """A wheel takes seconds to build, and pip one to start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build_context, "package_wheel", lambda folder: None)
    monkeypatch.setattr(build_settings, "_config_list", str)


@pytest.fixture
def project(tmp_path):
    create_project("tabular", str(tmp_path / "taxi"))
    return tmp_path / "taxi"


def infeed(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_it_says_what_was_built_and_what_comes_next(engines, project):
    engines.add("docker")
    result = infeed("build", project, "--tag", "taxi:1", "--base", "debian:13")
    assert result.exit_code == 0, result.output
    assert "taxi:1, with docker" in result.output
    assert f"compile {project} --image taxi:1 --output taxi.json" in result.output
    (build,) = (call for call in engines.calls("docker") if call[0] == "build")
    assert "--build-arg=BASE=debian:13" in build


def test_the_dockerfile_of_the_project_comes_before_that_of_the_templates(engines, project):
    engines.add(
        "docker", '[ "$1" != build ] || { for last; do :; done; read -r first <"$last"/Dockerfile; echo "$first"; }'
    )
    assert _log(project).startswith("# The image in which every step")
    (project / "Dockerfile").write_text("FROM mine AS steps\n")
    assert _log(project) == "FROM mine AS steps\n"


@pytest.mark.parametrize(
    ("beam", "user"),
    [
        ("--runner=DataflowRunner, --project=p, --region=r, '--temp_location=gs://b/tmp'", "0"),
        ("--runner=FlinkRunner, '--job_endpoint=jobs:8099'", "1000"),
    ],
)
def test_a_runner_in_the_config_makes_an_image_of_workers_too(engines, project, beam, user):
    engines.add("docker")
    (steps,) = (call for call in _built(engines, project) if "--target=steps" in call)
    assert not any("BEAM_SDK" in word for word in steps)
    with (project / "config.yaml").open("a") as config:
        config.write(f"deploy: {{beam_pipeline_args: [{beam}]}}\n")
    (worker,) = (call for call in _built(engines, project) if "--target=worker" in call)
    assert {f"--build-arg=BEAM_SDK={beam_sdk()}", f"--build-arg=WORKER_USER={user}"} <= set(worker)


def test_a_project_that_trains_on_jax_names_it_in_its_requirements(engines, project):
    engines.add("docker")
    with (project / "config.yaml").open("a") as config:
        config.write("  backend: jax\n")
    result = infeed("build", project, "--tag", "taxi:1")
    assert result.exit_code == 2
    assert "jax[tpu]" in result.output
    for wanted in ("numpy\njax[tpu]>=0.10\n", "tfx-infeed[jax]\n"):
        (project / "requirements.txt").write_text(wanted)
        assert infeed("build", project, "--tag", "taxi:1").exit_code == 0
    (project / "requirements.txt").write_text("jax-metal\n")
    assert infeed("build", project, "--tag", "taxi:1").exit_code == 2


def test_an_image_without_the_project_has_what_it_needs(engines, project):
    script = 'for last; do :; done; read -r needs <"$last"/project-requirements.txt; echo "$last"/project/* "$needs"'
    engines.add("docker", f'[ "$1" != build ] || {{ {script}; }}')
    (project / "requirements.txt").write_text("lightgbm\n")
    assert "model.py" in _log(project)
    with (project / "config.yaml").open("a") as config:
        config.write("deploy: {project: archive}\n")
    assert "model.py" not in _log(project)
    assert "lightgbm" in _log(project)


def _log(project):
    assert infeed("build", project, "--tag", "taxi:1").exit_code == 0
    return Path("runs/taxi/logs/build.log").read_text()


def _built(engines, project):
    assert infeed("build", project, "--tag", "taxi:1").exit_code == 0
    return [call for call in engines.calls("docker") if call[0] == "build"]


def test_a_build_that_is_ended_ends_the_engine_and_leaves_no_secret(engines, project, tmp_path, monkeypatch):
    # Asleep at first: a signal in the instant that starts the engine may come before there is anything to end.
    script = f"echo $$ >engine; /bin/sleep 0.5; {STEPS}; exec /bin/sleep 60"
    engines.add("docker", f"[ $1 != build ] || {{ {script}; }}")
    engine, log = tmp_path / "engine", tmp_path / "runs" / "taxi" / "logs" / "build.log"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    secrets = []

    def end():
        while not (log.exists() and "STEP 2/2" in log.read_text()):
            time.sleep(0.01)
        secrets.extend((tmp_path / "scratch").rglob("pip.conf"))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)  # a thread of ours might get it

    threading.Thread(target=end, daemon=True).start()
    result = infeed("build", project, "--tag", "taxi:1")
    assert result.exit_code == 130
    assert result.stderr.startswith("interrupted: ")
    assert [secret.exists() for secret in secrets] == [False]
    assert not Path("/proc", engine.read_text().strip()).exists()


def test_json_is_all_that_is_printed_where_it_is_asked_for(engines, project):
    engines.add("podman", "echo building")
    told = json.loads(infeed("build", project, "--tag", "taxi:1", "--json").output)
    assert told == {"tag": "taxi:1", "engine": "podman", "pushed": False, "log": "runs/taxi/logs/build.log"}


def test_the_name_may_stand_in_the_config(engines, project):
    engines.add("docker")
    with (project / "config.yaml").open("a") as config:
        config.write("deploy: {image: registry.example/taxi:2}\n")
    assert "registry.example/taxi:2" in infeed("build", project).output


def test_a_push_comes_after_the_build(engines, project):
    engines.add("docker")
    assert "push with" not in infeed("build", project, "--tag", "taxi:1", "--push").output
    assert [call[0] for call in engines.calls("docker")] == ["version", "build", "push"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'ERROR: failed to resolve debian' >&2; exit 1", r"cannot build(.|\n)*ERROR: failed(.|\n)*--base"),
        ("echo 'ERROR: no such package'; echo '2 steps failed'; exit 1", "ERROR: no such package"),
        ("[ $1 = push ] || exit 0; echo 'error: denied'; exit 1", r"cannot push(.|\n)*error: denied(.|\n)*login"),
    ],
)
def test_what_the_engine_died_of_is_told_with_the_log(engines, project, script, message):
    engines.add("docker", f"[ $1 != version ] || exit 0; {script}")
    result = infeed("build", project, "--tag", "taxi:1", "--push")
    assert result.exit_code == 2
    assert re.search(message, result.output), result.output
    assert "runs/taxi/logs/build.log" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing", "--tag", "taxi:1"], "there is no template or config file 'nothing'"),
        (["image"], "the image has no name"),
        (["image", "--tag", "taxi@sha256:5"], "'taxi@sha256:5' names an image by its digest"),
        (["image", "--tag", "taxi:1"], "no container engine works"),
    ],
)
def test_a_mistake_is_told_before_anything_long_starts(engines, words, message):
    result = infeed("build", *words)
    assert (result.exit_code, message in result.output) == (2, True)
