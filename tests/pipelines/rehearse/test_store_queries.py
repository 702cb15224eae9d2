from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.job.compiled import read_tasks
from infeed.pipelines.rehearse.executor_io import Artifact, TaskIO
from infeed.pipelines.rehearse.store import Execution, open_store, resolve

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
