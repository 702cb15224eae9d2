"""scripts/test-image.sh, run on pretended machines: what it says and how it ends, not the build itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = (
    *("awk", "cat", "cksum", "cp", "date", "dirname", "find", "flock", "grep", "head", "mkdir", "mktemp", "rm", "sed"),
    *("sh", "tail", "timeout", "tr"),
)
PASSED, FAILED, NOT_MADE = 0, 1, 77
BANNER = "THE IMAGE WAS NOT TESTED"

# What is given with -c names the engine, what is read from stdin compares the code, -m rehearses.
PYTHON = '#!/bin/sh\n[ "$1" != "{fails}" ] || exit 1\n[ "$1" != -c ] || {{ [ -e "{bin}/docker" ] && echo docker; }}\n'


class Machine:
    """A checkout and a PATH that holds nothing but what a test puts there: at first a user without an engine."""

    def __init__(self, root: Path) -> None:
        self.root, self.checkout, self.bin = root, root / "checkout", root / "bin"
        for folder in (
            "bin",
            "checkout/scripts",
            "checkout/.ci",
            "checkout/pipelines/cluster/image",
            "checkout/.venv/bin",
        ):
            (root / folder).mkdir(parents=True)
        for script in ("scripts/test-image.sh", ".ci/run"):
            shutil.copy(ROOT / script, self.checkout / script)
        for file in ("pyproject.toml", "setup.py", "README.md", "docs", "notebooks", "tests"):
            (self.checkout / file).touch()
        self.scratch = root / "scratch"
        self.scratch.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.python(fails="nothing")
        self.add("../checkout/.venv/bin/infeed")
        self.add("id", "#!/bin/sh\necho 1000\n")
        self.free(gigabytes=100)

    def add(self, name: str, text: str = "#!/bin/sh\n") -> None:
        assert not (self.bin / name).is_symlink(), "that would write into the real tool"
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def python(self, fails: str) -> None:
        self.add("../checkout/.venv/bin/python", PYTHON.format(bin=self.bin, fails=fails))

    def free(self, gigabytes: int) -> None:
        self.add("df", f"#!/bin/sh\necho head\necho disk 0 0 {gigabytes << 20} 0% /\n")

    def run(self, script: str = "scripts/test-image.sh") -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "HOME": str(self.root), "TMPDIR": str(self.scratch)}
        return subprocess.run([self.checkout / script], env=environment, capture_output=True, text=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def with_docker(machine: Machine) -> Machine:
    machine.add("docker")
    return machine


def test_only_tests_that_ran_inside_the_image_and_passed_are_a_pass(with_docker: Machine) -> None:
    done = with_docker.run()
    assert (done.returncode, done.stderr) == (PASSED, "")
    assert done.stdout.endswith("THE IMAGE WAS BUILT, THE TESTS PASS INSIDE IT, AND A COMPILED JOB RUNS IN IT\n")


def test_tests_that_fail_inside_are_a_failure(with_docker: Machine) -> None:
    with_docker.add("docker", '#!/bin/sh\n[ "$1" != run ]\n')
    done = with_docker.run()
    assert (done.returncode, "THE TESTS FAIL INSIDE THE IMAGE" in done.stdout) == (FAILED, True)


def test_a_job_that_does_not_run_in_the_image_is_a_failure(with_docker: Machine) -> None:
    with_docker.python(fails="-m")
    done = with_docker.run()
    assert (done.returncode, "DOES NOT RUN IN THE IMAGE" in done.stdout) == (FAILED, True)


def test_an_image_of_other_code_is_not_tested(with_docker: Machine) -> None:
    with_docker.python(fails="-")
    done = with_docker.run()
    assert (done.returncode, "HOLDS OTHER CODE" in done.stdout) == (FAILED, True)
    assert "running the tests" not in done.stdout


def test_tests_that_cannot_be_added_are_a_failure(with_docker: Machine) -> None:
    with_docker.python(fails="scripts/build_suite.py")
    done = with_docker.run()
    assert (done.returncode, "THE TESTS CANNOT BE ADDED" in done.stdout) == (FAILED, True)


def test_an_image_that_cannot_be_built_is_a_failure(with_docker: Machine) -> None:
    with_docker.add("../checkout/.venv/bin/infeed", '#!/bin/sh\n[ "$1" != build ] || exit 2\n')
    done = with_docker.run()
    assert (done.returncode, "THE IMAGE CANNOT BE BUILT" in done.stdout) == (FAILED, True)


def without_an_engine(machine: Machine) -> str:
    return "no container engine works, and only root can install one"


def without_packages(machine: Machine) -> str:
    machine.add("id", "#!/bin/sh\necho 0\n")
    machine.add("apt-get", "#!/bin/sh\nexit 100\n")
    return "no container engine works, and buildah cannot be installed"


def without_a_registry(machine: Machine) -> str:
    machine.add("docker", '#!/bin/sh\n[ "$1" != pull ]\n')
    return "docker.io/library/debian:trixie-slim cannot be pulled"


def without_room(machine: Machine) -> str:
    machine.add("docker")
    machine.free(gigabytes=3)
    return "3 GB are free, and the build takes up to 15"


@pytest.mark.parametrize("lacking", [without_an_engine, without_packages, without_a_registry, without_room])
def test_a_machine_that_cannot_make_it_says_so_loudly(machine: Machine, lacking: Callable[[Machine], str]) -> None:
    reason = lacking(machine)
    done = machine.run()
    assert done.returncode == NOT_MADE
    assert BANNER in done.stderr
    assert reason in done.stderr
    assert "PASS" not in done.stdout


def test_nothing_is_left_behind(with_docker: Machine) -> None:
    with_docker.run()
    assert not any(with_docker.scratch.iterdir())


@pytest.mark.parametrize(("status", "ends"), [(PASSED, 0), (NOT_MADE, 0), (FAILED, FAILED)])
def test_continuous_integration_fails_only_where_something_was_tried(machine: Machine, status: int, ends: int) -> None:
    machine.add("make")
    machine.add("../checkout/scripts/test-image.sh", f"#!/bin/sh\nexit {status}\n")
    assert machine.run(".ci/run").returncode == ends


def test_continuous_integration_stops_at_the_first_tests_that_fail(machine: Machine) -> None:
    machine.add("make", "#!/bin/sh\nexit 2\n")
    assert machine.run(".ci/run").returncode == 2
