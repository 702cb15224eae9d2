"""setup.py: what the wheel carries, and that it gives a working `infeed`."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # builds wheels

ROOT = Path(__file__).parents[1]
TOP_FOLDERS = ("components", "pipelines", "templates")
CARRIED = ("*.py", "*.pyi", "py.typed", "*.yaml", "*.html.j2", "*.md", "*.sh", "Dockerfile", "requirements*.txt")


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, links as links: setuptools leaves build/ behind, and would pack what an older build left there."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for folder in ("infeed", *TOP_FOLDERS):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(
        *(sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"),
        *("--outdir", folder, source),
        cwd=source,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def files_in(wheel: Path) -> set[str]:
    """All names in the wheel but those of its own metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


def metadata_in(wheel: Path, name: str) -> str:
    return zipfile.ZipFile(wheel).read(f"tfx_infeed-{version('tfx-infeed')}.dist-info/{name}").decode()


def test_the_wheel_is_pure_python_and_holds_nothing_outside_infeed(wheel: Path) -> None:
    assert wheel.name == "tfx_infeed-0.1.0-py3-none-any.whl"
    assert {name.split("/")[0] for name in files_in(wheel)} == {"infeed"}
    modules = {"__init__.py", "__init__.pyi", "__main__.py", "names.py", "py.typed"}
    assert {name.split("/")[1] for name in files_in(wheel)} == {*modules, "components", "pipelines", "templates"}


def test_what_is_built_would_be_taken_by_an_index(built: Path) -> None:
    paths = sorted(map(str, built.iterdir()))
    assert [Path(path).suffix for path in paths] == [".whl", ".gz"]
    assert run(sys.executable, "-m", "twine", "check", "--strict", *paths, cwd=built).count("PASSED") == 2


def test_the_wheel_leaves_no_file_of_the_source_tree_behind(wheel: Path) -> None:
    """A folder without __init__.py would be left out silently, though an editable install finds it."""
    tree = {path for folder in TOP_FOLDERS for pattern in CARRIED for path in (ROOT / folder).rglob(pattern)}
    door = {f"infeed/{path.name}" for path in (ROOT / "infeed").iterdir() if path.is_file()}
    assert files_in(wheel) == {f"infeed/{path.relative_to(ROOT).as_posix()}" for path in tree} | door


def test_the_wheel_carries_the_templates_the_report_and_the_engine(wheel: Path) -> None:
    assert {
        "infeed/components/dataset/manifest.py",
        "infeed/components/example_gen/sources/__init__.py",
        "infeed/components/feed/plan.py",
        "infeed/pipelines/cli.py",
        "infeed/templates/image/__init__.py",
        "infeed/templates/tabular/__init__.py",
        "infeed/templates/text/__init__.py",
    } <= files_in(wheel)


def test_the_command_is_called_infeed(wheel: Path) -> None:
    entry_points = configparser.ConfigParser()
    entry_points.read_string(metadata_in(wheel, "entry_points.txt"))
    assert dict(entry_points["console_scripts"]) == {"infeed": "infeed.__main__:main"}


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return HeaderParser().parsestr(metadata_in(wheel, "METADATA"))


def test_one_stack_is_pinned_for_each_python(metadata: Message) -> None:
    requirements = [line.replace('"', "'") for line in metadata.get_all("Requires-Dist", [])]
    of_tfx = [line.removesuffix(" and extra == 'tfx'") for line in requirements if line.endswith("extra == 'tfx'")]
    stack = [line for line in of_tfx if line.startswith(("tfx", "apache-beam", "kfp"))]
    assert set(metadata["Requires-Python"].split(",")) == {">=3.10", "<3.14"}
    assert sorted(stack) == [
        "apache-beam[gcp]==2.67.0; python_version < '3.11'",
        "apache-beam[gcp]==2.77.0; python_version >= '3.11'",
        "kfp<2.17,>=2.13; python_version >= '3.11'",
        "kfp==2.5.0; python_version < '3.11'",
        "tfx==1.16.0; python_version < '3.11'",
        "tfx==1.21.0; python_version >= '3.11'",
    ]


def run(*command: str | Path, path: Path | None = None, cwd: Path) -> str:
    environment = {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def test_an_installed_wheel_gives_a_working_command(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", "--no-deps", "--no-index", "--target", site, wheel)
    code = "from infeed.pipelines import cli; print(cli.__file__)"
    assert run(sys.executable, "-c", code, path=site, cwd=tmp_path) == f"{site}/infeed/pipelines/cli.py\n"
    assert "Usage: infeed" in run(site / "bin" / "infeed", "--help", path=site, cwd=tmp_path)
