"""What `pip install tfx-infeed` alone brings: ingest, inspect, statistics and load, without TensorFlow, TFX or Beam."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from pyarrow import csv, parquet

from infeed.pipelines.cluster.image.build import package_wheel

HEAVY = {"tensorflow", "keras", "tfx", "apache-beam", "tensorflow-transform", "ml-metadata", "scikit-learn"}
ROWS = 60


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_core_names_none_of_the_heavy_packages_and_pins_nothing(wheel: Path) -> None:
    """Else a project of TFX would get other versions with it than it has."""
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith("METADATA"))
    lines = HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    core = [found for line in lines if not (found := Requirement(line)).marker]
    assert {one.name for one in core} & HEAVY == set()
    limits = {one.name: [str(limit) for limit in one.specifier if limit.operator != ">="] for one in core}
    # Of these, nothing of ours works with the next major version.
    assert {name: upper for name, upper in limits.items() if upper} == {
        "click": ["<9"],
        "pyarrow-hotfix": ["<1"],
        "pydantic": ["<3"],
    }


class Environment:
    """A Python environment of its own; `uv` makes it where there is one, in a few seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder, found = folder, shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        self._uv = [found] if found else []
        if not found and importlib.util.find_spec("ensurepip") is None:
            pytest.skip("there is neither uv nor ensurepip, which make environments")
        maker = [found, "venv", "--quiet", "--python", sys.executable] if found else [sys.executable, "-m", "venv"]
        subprocess.run([*maker, folder], check=True)

    def install(self, *what: str | Path) -> subprocess.CompletedProcess[str]:
        python = self._folder / "bin" / "python"
        pip = [*self._uv, "pip", "install", "--python", python] if self._uv else [python, "-m", "pip", "install"]
        return subprocess.run([*pip, "--quiet", *what], capture_output=True, text=True)

    def run(self, command: str, *arguments: str | Path, cwd: Path, code: int = 0) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [self._folder / "bin" / command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """With the core, and nothing else."""
    folder = tmp_path_factory.mktemp("core")
    made = Environment(folder / "env")
    if made.install("lazy-loader").returncode:
        pytest.skip("no package index answers")
    installed = made.install(wheel)
    assert installed.returncode == 0, installed.stderr
    yield made
    shutil.rmtree(folder)  # a quarter of a gigabyte


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same table in three formats."""
    folder = tmp_path_factory.mktemp("data")
    table = pa.table(
        {"number": range(ROWS), "half": [row / 2 for row in range(ROWS)], "word": ["a", "b"] * (ROWS // 2)}
    )
    csv.write_csv(table, folder / "table.csv")
    parquet.write_table(table, folder / "table.parquet")
    (folder / "table.jsonl").write_text("\n".join(map(json.dumps, table.to_pylist())))
    return folder


@pytest.mark.slow
def test_the_core_writes_shows_and_loads_a_dataset(environment: Environment, data: Path) -> None:
    environment.run("infeed", "ingest", "table.csv", "out-csv", "--split", "train", cwd=data)
    environment.run("python", "-c", LOOP, cwd=data)
    assert "number" in environment.run("infeed", "statistics", "out-csv", "--html", "page.html", cwd=data)


# What TensorFlow or TFX would bring is told, and neither is imported.
LOOP = """
import sys, infeed

for kind in ("jsonl", "parquet"):
    infeed.ingest(f"table.{kind}", f"out-{kind}", splits={"train": 1})
for kind in ("csv", "jsonl", "parquet"):
    assert infeed.inspect(f"out-{kind}").manifest.rows_read == 60
    loaded = infeed.load(f"out-{kind}", batch_size=8, cache_dir=f"cache-{kind}")
    assert sorted(loaded[:]["number"].tolist()) == list(range(60))
    assert len(list(loaded.numpy(label="half", epochs=2))) == 14
for what, needed in ((lambda: infeed.Trainer, "tfx"), (loaded.tf, "tf")):
    try:
        what()
    except infeed.InfeedError as error:
        assert error.do == f"pip install 'tfx-infeed[{needed}]'", error
    else:
        raise AssertionError(needed)
assert not {"tensorflow", "tfx", "apache_beam"} & sys.modules.keys()
"""


@pytest.mark.slow
def test_a_command_that_needs_more_says_so(environment: Environment, data: Path) -> None:
    assert "tfx-infeed[tfx]" in environment.run("infeed", "run", "tabular", cwd=data, code=2)
    assert "Create a project" in environment.run("infeed", "--help", cwd=data)
