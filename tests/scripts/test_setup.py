"""scripts/setup.sh, run on pretended machines: a PATH of tiny stubs for the interpreters, uv, g++ and the C library."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.sh"
SYSTEM = platform.freedesktop_os_release()["PRETTY_NAME"]
TOOLS = ("cat", "cksum", "dirname", "flock", "ln", "mkdir", "paste", "rm", "sed", "sort")

# Answers the three questions that setup.sh asks of an interpreter; what `lacks` names is reported as missing.
PYTHON = """#!/bin/sh
echo "python $*" >>"$LOG"
case "$*" in
*"{lacks}"*) exit 1 ;;
--version) echo "Python {version}" ;;
*version_info*) echo "python{minor}" ;;
"-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m pip install"*) [ ! -e "$BROKEN" ] ;;
esac
"""
PYENV_SHIM = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"
UV = """#!/bin/sh
echo "uv $*" >>"$LOG"
case "$1 $2" in
"python find") echo "$UV_PYTHON" ;;
"venv --quiet") mkdir -p .venv/bin && cp "$5" .venv/bin/python ;;
"python install" | "pip install") [ ! -e "$BROKEN" ] ;;
esac
"""


class Machine:
    """A checkout and a PATH that holds nothing but what a test puts there."""

    def __init__(self, root: Path, glibc: str = "2.36", uname: str = "Linux x86_64") -> None:
        self.root, self.checkout, self.bin = root, root / "checkout", root / "bin"
        self.log, self.broken = root / "log", root / "broken"
        for folder in (self.bin, self.checkout / "scripts"):
            folder.mkdir(parents=True)
        shutil.copy(SCRIPT, self.checkout / "scripts")
        for name in ("setup.py", "pyproject.toml"):
            (self.checkout / name).touch()
        for tool in (*TOOLS, "cp", "sh"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.add("uname", f"#!/bin/sh\necho '{uname}'\n")
        self.add("getconf", f"#!/bin/sh\necho 'glibc {glibc}'\n" if glibc else "#!/bin/sh\nexit 1\n")
        self.add("g++", "#!/bin/sh\n")

    def add(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def add_python(self, name: str, version: str, lacks: str = "nothing at all") -> Path:
        minor = version.rpartition(".")[0]
        return self.add(name, PYTHON.format(version=version, minor=minor, lacks=lacks))

    def add_pyenv(self, version: str) -> Path:
        return self.add_python(f"../pyenv/versions/{version}/bin/python", version).resolve()

    def setup(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.checkout}/.venv/bin:{self.bin}",
            "PYENV_ROOT": str(self.root / "pyenv"),
            "LOG": str(self.log),
            "BROKEN": str(self.broken),
            "UV_PYTHON": str(self.root / "uv" / "python3.10"),
        }
        command = ["/bin/sh", "scripts/setup.sh", *arguments]
        return subprocess.run(command, cwd=self.checkout, env=environment, capture_output=True, text=True, check=False)

    def calls(self) -> list[str]:
        """What was asked of uv and of interpreters since the last time, questions left out."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line for line in lines if "--version" not in line and " -c " not in line]


@pytest.mark.parametrize(
    ("glibc", "names", "chosen"),
    [
        ("2.36", {"python3.10": "3.10.13"}, "TFX 1.16 on python3.10"),
        ("2.36", {"python3": "3.10.2"}, "TFX 1.16 on python3"),
        ("2.41", {"python3.13": "3.13.5"}, "TFX 1.21 on python3.13"),
        ("2.39", {"python3": "3.12.3"}, "TFX 1.21 on python3"),  # Ubuntu 24.04
        ("2.39", {"python3.11": "3.11.9", "python3.12": "3.12.3"}, "TFX 1.21 on python3.12"),
        ("2.41", {"python3.10": "3.10.13", "python3.13": "3.13.5"}, "TFX 1.16 on python3.10"),  # first choice
        ("2.36", {"python3.10": "3.10.13", "python3.11": "3.11.2"}, "TFX 1.16 on python3.10"),
    ],
)
def test_the_c_library_and_the_pythons_on_the_path_choose_the_stack(
    tmp_path: Path, glibc: str, names: dict[str, str], chosen: str
) -> None:
    machine = Machine(tmp_path, glibc)
    for name, version in names.items():
        machine.add_python(name, version)
    stack, _, interpreter = chosen.rpartition(" ")
    assert machine.setup("--which").stdout == f"{stack} {machine.bin / interpreter}\n"


def test_a_pyenv_version_is_found_although_its_shim_fails(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("python3.10", PYENV_SHIM)
    machine.add_python("python3", "3.11.7")
    machine.add_pyenv("3.9.18")
    python = machine.add_pyenv("3.10.13")
    assert machine.setup("--which").stdout == f"TFX 1.16 on {python}\n"


def test_a_free_threaded_python_is_passed_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path, glibc="2.41")
    machine.add_pyenv("3.13.0t")
    python = machine.add_pyenv("3.12.1")
    assert machine.setup("--which").stdout == f"TFX 1.21 on {python}\n"


def test_uv_brings_python_3_10_where_nothing_installed_fits(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add_python("python3", "3.11.2")
    machine.add("uv", UV)
    assert machine.setup("--which").stdout == f"TFX 1.16 on {tmp_path}/uv/python3.10\n"


@pytest.mark.parametrize(
    ("glibc", "uname", "version", "lines"),
    [
        (  # Debian 12 with its own Python only
            "2.36",
            "Linux x86_64",
            "3.11.2",
            [
                f"Found: Python 3.11.2 on {SYSTEM}, Linux x86_64, glibc 2.36.",
                "No stack fits: TFX 1.16 needs Python 3.10, and TFX 1.21, which takes Python 3.11 to 3.13, "
                "needs glibc 2.39 or newer.",
                "Do: install Python 3.10 (pyenv install 3.10) or uv, which brings its own, then try again; "
                "or use Debian 13 or Ubuntu 24.04.",
            ],
        ),
        (
            "2.41",
            "Linux x86_64",
            "3.14.0",
            [
                f"Found: Python 3.14.0 on {SYSTEM}, Linux x86_64, glibc 2.41.",
                "No stack fits: TFX 1.16 needs Python 3.10, and TFX 1.21 needs Python 3.11, 3.12 or 3.13.",
                "Do: install one of them (pyenv install 3.10, say) or uv, which brings its own, then try again.",
            ],
        ),
        (  # no wheels for this processor, so that even the right Python does not help
            "2.36",
            "Linux aarch64",
            "3.10.13",
            [
                f"Found: Python 3.10.13 on {SYSTEM}, Linux aarch64, glibc 2.36.",
                "No stack fits: TFX 1.16 and TFX 1.21 are set up here for Linux on x86_64 with glibc only.",
                "Do: use such a machine, or a container of one: docker run --platform linux/amd64 -it python:3.10.",
            ],
        ),
        (  # Alpine: musl
            "",
            "Linux x86_64",
            "3.10.13",
            [
                f"Found: Python 3.10.13 on {SYSTEM}, Linux x86_64, no glibc.",
                "No stack fits: TFX 1.16 and TFX 1.21 are set up here for Linux on x86_64 with glibc only.",
                "Do: use such a machine, or a container of one: docker run --platform linux/amd64 -it python:3.10.",
            ],
        ),
    ],
)
def test_where_no_stack_fits_three_lines_say_what_was_found_why_and_what_to_do(
    tmp_path: Path, glibc: str, uname: str, version: str, lines: list[str]
) -> None:
    machine = Machine(tmp_path, glibc, uname)
    machine.add_python("python3", version)
    result = machine.setup()
    assert (result.returncode, result.stdout, result.stderr.splitlines()) == (1, "", lines)
    assert not (machine.checkout / ".venv").exists()


def test_a_uv_that_cannot_download_python_is_part_of_why_no_stack_fits(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("uv", UV)
    machine.broken.touch()
    assert "needs glibc 2.39 or newer; uv could not download Python 3.10.\n" in machine.setup().stderr


def test_every_python_that_was_found_is_named_and_none_is_said_to_be_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert "Found: no Python 3 on" in machine.setup().stderr
    machine.add_python("python3", "3.11.2")
    machine.add_pyenv("3.9.18")
    assert "Found: Python 3.11.2, Python 3.9.18 on" in machine.setup().stderr


@pytest.mark.parametrize(
    ("lacks", "package"), [("Python.h", "python3.10-dev"), ("ensurepip", "python3.10-venv"), ("g++", "g++")]
)
def test_missing_build_tools_are_named_as_debian_packages(tmp_path: Path, lacks: str, package: str) -> None:
    machine = Machine(tmp_path)
    machine.add_python("python3.10", "3.10.13", lacks=lacks)
    (machine.bin / lacks).unlink(missing_ok=True)
    result = machine.setup()
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"Do: apt-get install {package}"


@pytest.fixture
def with_uv(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.add_python("python3.10", "3.10.13")
    machine.add("uv", UV)
    return machine


def full_setup(machine: Machine) -> list[str]:
    return [
        f"uv venv --quiet --seed --python {machine.bin}/python3.10 .venv",
        "uv pip install --quiet --python .venv/bin/python --editable .[tfx,test]",
    ]


def test_a_second_setup_reuses_the_environment_even_an_activated_one(with_uv: Machine) -> None:
    assert with_uv.setup().returncode == 0
    assert with_uv.calls() == full_setup(with_uv)
    assert (with_uv.setup().returncode, with_uv.calls()) == (0, [])


@pytest.mark.parametrize("file", ["setup.py", "pyproject.toml", "scripts/setup.sh"])
def test_changed_dependencies_set_up_again(with_uv: Machine, file: str) -> None:
    with_uv.setup()
    with_uv.calls()
    with (with_uv.checkout / file).open("a") as stream:
        stream.write("# changed\n")
    assert (with_uv.setup().returncode, with_uv.calls()) == (0, full_setup(with_uv))


def test_a_changed_interpreter_sets_up_again(with_uv: Machine) -> None:
    with_uv.setup()
    with_uv.calls()
    (with_uv.checkout / ".venv/bin/python").unlink()  # as when its pyenv version was removed
    assert (with_uv.setup().returncode, with_uv.calls()) == (0, full_setup(with_uv))


def test_an_unfinished_environment_is_made_afresh(with_uv: Machine) -> None:
    with_uv.broken.touch()
    assert with_uv.setup().returncode == 1
    assert with_uv.calls()[-1] == "python -m pip install --quiet --editable .[tfx,test]"
    leftover = with_uv.checkout / ".venv" / "leftover"
    leftover.touch()
    with_uv.broken.unlink()
    assert (with_uv.setup().returncode, with_uv.calls()) == (0, full_setup(with_uv))
    assert not leftover.exists()


def test_without_uv_the_environment_is_plain_and_pip_is_the_last_resort(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add_python("python3.10", "3.10.13")
    assert machine.setup().returncode == 0
    assert machine.calls() == [
        "python -m venv .venv",
        "python -m pip install --quiet uv",  # a stub: leaves no .venv/bin/uv, as where uv cannot be had
        "python -m pip install --quiet --editable .[tfx,test]",
    ]
