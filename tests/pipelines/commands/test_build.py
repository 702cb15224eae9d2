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
from infeed.pipelines.commands.new import create_project
from infeed.pipelines.image import build as build_settings
from infeed.pipelines.image import context as build_context
from infeed.pipelines.image.build import last_built
from infeed.pipelines.image.context import beam_sdk

STEPS = "echo 'STEP 1/2: FROM debian'; echo 'STEP 2/2: RUN --mount=type=secret,id=ca.crt pip install --upgrade tfx'"


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


def test_it_says_what_was_built_how_large_it_is_and_what_comes_next(engines, project):
    engines.add("docker", f"case $1 in build) {STEPS};; images) echo 3.4GB;; esac")
    result = infeed("build", project, "--tag", "taxi:1", "--base", "debian:13")
    assert result.exit_code == 0, result.output
    assert "FROM debian\nRUN pip install --upgrade tfx\n" in result.output
    assert "taxi:1, 3.4GB, with docker" in result.output
    assert f"compile {project} --image taxi:1 --output taxi.json" in result.output
    (build,) = (call for call in engines.calls("docker") if call[0] == "build")
    assert "--build-arg=BASE=debian:13" in build
    assert "docker knows no digest of the base" in result.output


@pytest.mark.parametrize(("beam", "user"), [("dataflow: {}", "0"), ("flink: {job_endpoint: 'jobs:8099'}", "1000")])
def test_a_runner_in_the_config_makes_an_image_of_workers_too(engines, project, beam, user):
    engines.add("docker")
    (steps,) = (call for call in _built(engines, project) if "--target=steps" in call)
    assert not any("BEAM_SDK" in word for word in steps)
    with (project / "config.yaml").open("a") as config:
        config.write(f"deploy: {{beam: {{{beam}}}}}\n")
    (worker,) = (call for call in _built(engines, project) if "--target=worker" in call)
    assert {f"--build-arg=BEAM_SDK={beam_sdk()}", f"--build-arg=WORKER_USER={user}"} <= set(worker)


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


DIGEST = "sha256:" + "5" * 64


@pytest.mark.parametrize(
    ("engine", "answer", "built_on"),
    [
        ("docker", f"case $1$2 in imageinspect) echo debian@{DIGEST};; esac", f"debian@{DIGEST}"),
        ("buildah", f"[ $1 != inspect ] || echo {DIGEST}", "debian:13"),
    ],
)
def test_the_base_is_told_with_its_digest_which_the_image_records_too(engines, project, engine, answer, built_on):
    engines.add(engine, answer)
    result = infeed("build", project, "--tag", "taxi:1", "--base", "debian:13")
    (build,) = (call for call in engines.calls(engine) if call[0] == "build")
    assert f"base        debian@{DIGEST}\n" in result.output
    assert f"--build-arg=BASE={built_on}" in build
    assert {
        "--label=org.opencontainers.image.base.name=debian:13",
        f"--label=org.opencontainers.image.base.digest={DIGEST}",
    } <= set(build)


def test_a_base_that_is_not_here_is_fetched_before_its_digest_is_looked_up(engines, project):
    engines.add("podman", f"case $1 in pull) : >here;; image) [ ! -e here ] || echo debian@{DIGEST};; esac")
    told = json.loads(infeed("build", project, "--tag", "taxi:1", "--json").output)
    assert told["base"] == f"docker.io/library/debian@{DIGEST}"


def test_a_base_that_is_named_by_digest_is_taken_as_it_stands(engines, project):
    engines.add("docker")
    base = f"debian@{DIGEST}"
    assert f"base        {base}\n" in infeed("build", project, "--tag", "taxi:1", "--base", base).output
    assert [call[0] for call in engines.calls("docker")] == ["version", "build", "images"]
    assert {f"--build-arg=BASE={base}", "--label=org.opencontainers.image.base.name=debian"} <= set(
        engines.calls("docker")[1]
    )


def test_a_build_that_is_ended_ends_the_engine_and_leaves_no_secret(engines, project, tmp_path, monkeypatch):
    engines.add("docker", f"[ $1 != build ] || {{ echo $$ >engine; {STEPS}; exec /bin/sleep 60; }}")
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
    engines.add("podman", f"case $1 in build) {STEPS};; images) echo 3.4GB;; esac")
    told = json.loads(infeed("build", project, "--tag", "taxi:1", "--json").output)
    assert (told["tag"], told["size"], told["engine"], told["pushed"]) == ("taxi:1", "3.4GB", "podman", False)


def test_the_name_may_stand_in_the_config(engines, project):
    engines.add("docker")
    with (project / "config.yaml").open("a") as config:
        config.write("deploy: {image: registry.example/taxi:2}\n")
    assert "registry.example/taxi:2" in infeed("build", project).output


def test_a_push_comes_after_the_build(engines, project):
    engines.add("docker", f"[ $1 != build ] || {{ {STEPS}; }}")
    assert "push with" not in infeed("build", project, "--tag", "taxi:1", "--push").output
    assert [call[0] for call in engines.calls("docker")][-4:] == ["build", "push", "image", "images"]


PUSHED = "sha256:" + "7" * 64
TAG = "registry.example:5000/taxi:1"
NAMED = f"registry.example:5000/taxi@{PUSHED}"
ELSEWHERE = f"other.example/taxi@{DIGEST}"


@pytest.mark.parametrize(
    ("engine", "answer"),
    [
        ("docker", f"case $1$2 in imageinspect) echo '{ELSEWHERE}'; echo '{NAMED}'; echo '{ELSEWHERE}';; esac"),
        ("podman", f"case $2 in --digestfile=*) echo {PUSHED} >${{2#*=}};; esac"),
        ("buildah", f"case $2 in --digestfile=*) echo {PUSHED} >${{2#*=}};; esac"),
    ],
)
def test_after_a_push_the_image_is_named_by_the_digest_that_its_own_registry_has(engines, project, engine, answer):
    engines.add(engine, answer)
    result = infeed("build", project, "--tag", TAG, "--push")
    assert f"image       {NAMED}\n" in result.output
    built = last_built(TAG, "taxi")
    assert built
    assert (built.tag, built.image, built.pushed) == (TAG, NAMED, True)


@pytest.mark.parametrize(("words", "said"), [(["--push"], "does not tell its digest"), ([], "--push finds the digest")])
def test_where_the_digest_is_not_known_it_says_so(engines, project, words, said):
    engines.add("docker")
    assert said in infeed("build", project, "--tag", TAG, *words).output
    assert last_built(TAG, "taxi") is None


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'ERROR: failed to resolve debian' >&2; exit 1", r"base image(.|\n)*ERROR: failed(.|\n)*--base"),
        (
            f"{STEPS}; echo 'ERROR: no such package'; exit 1",
            r"failed at 'RUN pip install --upgrade tfx': ERROR: no such",
        ),
        (f"[ $1 = push ] || {{ {STEPS}; exit 0; }}; echo 'error: denied'; exit 1", r"error: denied(.|\n)*login"),
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
