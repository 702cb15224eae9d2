from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import read_tasks
from infeed.pipelines.cluster.rehearse.executor_io import Artifact, TaskIO
from infeed.pipelines.cluster.rehearse.store import Execution, open_store, resolve


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


MODEL = {"schemaTitle": "tfx.Model"}
ARTIFACTS = [
    Artifact("1", MODEL, "/", {"span": 1.0, "tag": "good"}),
    Artifact("2", {"schemaTitle": "tfx.Schema"}, "/"),
    Artifact("3", MODEL, "/", {"span": 2.0, "tag": "bad"}),
    Artifact("4", MODEL, "/removed by hand", {"tag": "gone"}),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"filter": 'schema_title="tfx.Model" AND state=LIVE'}, ["3"]),
        ({"filter": 'schema_title="tfx.Model"', "limit": 5}, ["4", "3", "1"]),
        ({"filter": "metadata.span.number_value=1"}, ["1"]),
        ({"filter": 'metadata.tag.string_value="bad"'}, ["3"]),
        ({"filter": 'name="2"'}, ["2"]),
        ({"filter": 'schema_title="tfx.Model" AND state=DELETED'}, ["4"]),
        ({"filter": 'schema_title="tfx.Examples"'}, []),
    ],
)
def test_the_newest_that_pass_the_filter_are_found(
    jobs: ModuleType, tmp_path: Path, query: dict[str, object], found: list[str]
) -> None:
    assert names(jobs, tmp_path, query) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [('name="a" OR name="b"', "cannot read the filter"), ("create_time=3", "cannot filter by 'create_time'")],
)
def test_a_filter_that_is_not_understood_is_refused(jobs: ModuleType, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        names(jobs, tmp_path, {"filter": text})


def names(jobs: ModuleType, root: Path, query: dict[str, object]) -> list[str]:
    step = {**jobs.step(gives=["x"]), "executor": {"resolver": {"outputArtifactQueries": {"x": query}}}}
    [task] = read_tasks(jobs.job({"find": step}).spec)
    with open_store(root) as store:
        store.record(Execution("small", "1", "made", "", 0.0), ARTIFACTS)
        return [artifact.name for artifact in resolve(task, TaskIO(), store, "small", {}).artifacts["x"]]
