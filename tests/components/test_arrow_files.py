"""A Parquet or Arrow file whose columns are of a pickled type: pyarrow 10 runs the pickle (CVE-2023-47248)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What a user calls that reads a file of theirs, each in a new process: another test's imports must not protect it.
COMMANDS = [["ingest", "{data}", "{folder}/out"], ["run", "tabular", "--data", "{data}", "--label", "label"]]
READERS = {
    "table.parquet": "from pyarrow import parquet; parquet.read_table({path!r})",
    "table.arrow": "import pyarrow; pyarrow.ipc.open_file({path!r}).read_all()",
    "table.feather": "from pyarrow import feather; feather.read_table({path!r})",
}


@pytest.mark.parametrize("package", ["components", "pipelines", "templates"])
def test_no_reader_of_the_process_runs_it_once_anything_of_this_package_is_imported(
    package: str, pickled_column: Path
) -> None:
    reading = [reader.format(path=str(pickled_column / name)) for name, reader in READERS.items()]
    attempts = [f"try:\n    {code}\nexcept RuntimeError as error:\n    print(error)" for code in reading]
    # At its end, since threads of pyarrow 10 that refused a file sometimes abort the process when Python takes it down.
    leave = "import os, sys; sys.stdout.flush(); os._exit(0)"
    code = "\n".join([f"import infeed.{package}", *attempts, leave])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("Disallowed deserialization of 'arrow.py_extension_type'") == len(READERS)
    assert not (pickled_column / "it-was-run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_refuses_it(command: list[str], pickled_column: Path) -> None:
    words = [word.format(data=pickled_column / "table.parquet", folder=pickled_column) for word in command]
    done = subprocess.run(
        [Path(sys.executable).with_name("infeed"), *words], capture_output=True, text=True, cwd=pickled_column
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: a column has a Python extension type")
    assert f"where: {pickled_column}/table.parquet\n" in done.stderr
    assert not (pickled_column / "it-was-run").exists()
    assert not (pickled_column / "out").exists()
