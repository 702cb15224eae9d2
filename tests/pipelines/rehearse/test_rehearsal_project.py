"""A rehearsal puts the archive of the project where its steps look for it, as a submission does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType

import pytest

from infeed.components.errors import InfeedError
from infeed.components.project_archive import VARIABLE, digest
from infeed.pipelines.job.compiled import CompiledJob
from infeed.pipelines.rehearse.locations import PathMapping

ARCHIVE = b"archive"


@pytest.fixture
def compiled(jobs: ModuleType, tmp_path: Path) -> CompiledJob:
    made = jobs.step("write('model', open(os.environ['INFEED_PROJECT']).read())", gives=["model"])
    place = f"gs://b/taxi/project/{digest(ARCHIVE)}.tar.gz"
    made["executor"]["container"]["env"] = [{"name": VARIABLE, "value": place}]
    return dataclasses.replace(jobs.job({"Trainer": made}), file=str(tmp_path / "taxi.json"))


def test_the_steps_find_the_archive_in_the_mapped_place(
    jobs: ModuleType, compiled: CompiledJob, tmp_path: Path
) -> None:
    (tmp_path / "taxi.project.tar.gz").write_bytes(ARCHIVE)
    ended = jobs.run(compiled, tmp_path / "root", maps=(PathMapping.parse(f"gs://b={tmp_path}/b"),))
    assert jobs.text(ended, "Trainer", "model") == "archive"
    assert len(list((tmp_path / "b" / "taxi" / "project").iterdir())) == 1


def test_without_the_archive_no_step_starts(jobs: ModuleType, compiled: CompiledJob, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="missing"):
        jobs.run(compiled, tmp_path / "root", maps=(PathMapping.parse(f"gs://b={tmp_path}/b"),))
    assert not (tmp_path / "root" / "logs").exists()
