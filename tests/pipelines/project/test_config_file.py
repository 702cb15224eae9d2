"""What a config file names."""

from __future__ import annotations

from pathlib import Path

from infeed.pipelines.project.config_file import read_project


def test_a_dotted_module_of_the_project_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "dense.py").write_text("def build(spec): pass\n")
    config = tmp_path / "config.yaml"
    config.write_text("{source: csv, data: a.csv, label: a, model: networks.dense:build, features: []}")
    project = read_project(str(config))
    assert project.reference("networks.dense:build") == f"{tmp_path}/networks/dense.py:build"
    assert project.reference("os.path:join") == "os.path:join"
