from __future__ import annotations

import importlib.util
from pathlib import Path

from infeed.pipelines.cluster.containers import Engine

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_suite.py"


def test_the_suite_is_built_with_the_settings_of_pip_and_nothing_else(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("build_suite", SCRIPT)
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    command = script.command(Engine("buildah"), "context", "localhost/suite:test", tmp_path)
    assert command[:2] == ["buildah", "build"]
    assert command[-3:] == ["--target=suite", "--tag=localhost/suite:test", "context"]
    assert f"--secret=id=pip.conf,src={tmp_path / 'pip.conf'}" in command
    assert (tmp_path / "pip.conf").read_text().startswith("[global]\n")
