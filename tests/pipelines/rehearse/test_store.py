from __future__ import annotations

import json
from pathlib import Path

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.executor_io import Artifact
from infeed.pipelines.rehearse.store import Execution, open_store


def executed(run: str, pipeline: str = "taxi", **more: object) -> Execution:
    return Execution(pipeline, run, "Trainer", "abc", 1.5, **more)  # type: ignore[arg-type]


def test_it_is_there_again_the_next_time(tmp_path: Path) -> None:
    model = Artifact("1/Trainer/model", {"instanceSchema": "title: tfx.Model\ntype: object\n"}, str(tmp_path), {"a": 1})
    execution = executed("1", artifacts={"model": [model.name]}, parameters={"rows": 3})
    with open_store(tmp_path) as store:
        store.record(execution, [model])
    with open_store(tmp_path) as store:
        assert store.cached("taxi", "abc") == execution
        assert list(store.newest("taxi")) == [model]
        assert store.artifact(model.name).title == "tfx.Model"


def test_pipelines_do_not_see_each_other(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.record(executed("1", pipeline="other"), [])
        assert store.cached("taxi", "abc") is None


def test_the_newest_execution_counts(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for run in ("1", "2"):
            store.record(executed(run), [])
        assert store.cached("taxi", "abc") == executed("2")


def test_a_file_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "rehearsals.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(InfeedError, match="written by another version"), open_store(tmp_path):
        pass
