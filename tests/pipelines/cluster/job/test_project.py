from __future__ import annotations

import json
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine.project_archive import VARIABLE, digest
from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.cluster.job.project import archive_beside, publish

ARCHIVE = b"archive"


def job(folder: Path, root: str) -> CompiledJob:
    env = [{"name": VARIABLE, "value": f"{root}/project/{digest(ARCHIVE)}.tar.gz"}]
    spec = {
        "pipelineInfo": {"name": "taxi"},
        "root": {"dag": {"tasks": {"Trainer": {"componentRef": {"name": "Trainer"}}}}},
        "components": {"Trainer": {"executorLabel": "trainer"}},
        "deploymentSpec": {"executors": {"trainer": {"container": {"image": "i", "env": env}}}},
    }
    (folder / "taxi.json").write_text(json.dumps(spec))
    return CompiledJob.read(folder / "taxi.json")


def test_the_archive_goes_to_where_the_steps_look(tmp_path: Path, s3: str) -> None:
    for root in (str(tmp_path / "root"), s3):
        read = job(tmp_path, root)
        archive_beside(read.file).write_bytes(ARCHIVE)
        publish(read)
        archive_beside(read.file).unlink()
        publish(read)  # it is there


@pytest.mark.parametrize(("content", "value"), [(None, "missing"), (b"other", "another compilation")])
def test_without_the_archive_of_the_job_nothing_starts(tmp_path: Path, content: bytes | None, value: str) -> None:
    read = job(tmp_path, str(tmp_path / "root"))
    if content:
        (tmp_path / "taxi.project.tar.gz").write_bytes(content)
    with pytest.raises(InfeedError, match=value) as error:
        publish(read)
    assert error.value.where == str(tmp_path / "taxi.json")
    assert not (tmp_path / "root").exists()


def test_a_job_without_an_archive_has_nothing_to_upload(tmp_path: Path) -> None:
    publish(CompiledJob({"deploymentSpec": {}, "root": {"dag": {"tasks": {}}}}))


def test_a_store_that_refuses_the_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("no folder")
    read = job(tmp_path, str(tmp_path / "root"))
    archive_beside(read.file).write_bytes(ARCHIVE)
    with pytest.raises(InfeedError, match="cannot upload the project") as error:
        publish(read)
    assert error.value.where == read.project_archive
