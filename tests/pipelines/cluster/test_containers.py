import os
import subprocess

import pytest

from infeed.components import InfeedError
from infeed.pipelines.cluster.containers import Engine, find_engine

NO_SERVER = 'echo "Cannot connect to the Docker daemon" >&2; exit 1'


def test_an_engine_must_work_and_not_only_be_there(engines):
    engines.add("docker", NO_SERVER)
    engines.add("podman")
    assert find_engine() == Engine("podman")


def test_docker_comes_before_podman_and_buildah(engines):
    for name in ("buildah", "podman", "docker"):
        engines.add(name)
    assert find_engine() == Engine("docker")


def test_where_no_engine_works_each_reason_is_told(engines):
    engines.add("docker", NO_SERVER)
    reasons = (
        r"docker: Cannot connect to the Docker daemon; podman: not installed; buildah: not installed(.|\n)*apt-get"
    )
    with pytest.raises(InfeedError, match=reasons):
        find_engine()


def test_the_command_takes_the_place_of_the_entry_point(engines):
    engines.add("docker")
    command = find_engine().run("taxi:1", ["python", "-m", "job"], folders=["/data"], env={"A": "b c"})
    assert command[:3] == ["docker", "run", "--rm"]
    assert command[-4:] == ["--entrypoint=python", "taxi:1", "-m", "job"]
    assert {"--volume=/data:/data", "--env=A=b c", "--network=host"} <= set(command)


def test_a_command_in_docker_obeys_signals_and_what_it_writes_belongs_to_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = Engine("docker").run("taxi:1", ["job"], folders=["out"])
    user = f"--user={os.getuid()}:{os.getgid()}"
    assert {"--init", user, f"--volume={tmp_path}/out:{tmp_path}/out"} <= set(command)


def test_with_buildah_a_container_is_made_for_the_command_and_taken_away_again(engines):
    engines.add("buildah", '[ "$1" != run ] || exit 7')
    done = subprocess.run(find_engine().run("taxi:1", ["sh", "-c", "exit 7"], folders=["/data"]))
    assert done.returncode == 7
    probe, made, ran, removed = engines.calls("buildah")
    name = made[3]
    assert (probe, made) == (["info"], ["from", "--quiet", "--name", name, "taxi:1"])
    assert (ran[:3], ran[-5:]) == (["run", "--isolation", "chroot"], [name, "--", "sh", "-c", "exit 7"])
    assert "--volume=/data:/data" in ran
    assert removed == ["rm", name]


def test_with_buildah_an_image_that_is_not_there_ends_as_with_docker(engines):
    engines.add("buildah", '[ "$1" != from ] || exit 1')
    assert subprocess.run(find_engine().run("taxi:1", ["true"])).returncode == 125


@pytest.mark.parametrize(
    ("engine", "begins"),
    [
        ("docker", ["docker", "build", "--progress=plain"]),
        ("podman", ["podman", "build"]),
        ("buildah", ["buildah", "build", "--layers", "--isolation=chroot"]),
    ],
)
def test_a_build_is_given_arguments_and_secrets(engine, begins):
    arguments, secrets = {"BASE": "debian"}, {"pip.conf": "/etc/pip.conf"}
    command = Engine(engine).build("folder", "taxi:1", arguments=arguments, secrets=secrets, target="steps")
    assert command == [
        *begins,
        "--build-arg=BASE=debian",
        "--secret=id=pip.conf,src=/etc/pip.conf",
        "--target=steps",
        "--tag=taxi:1",
        "folder",
    ]
