from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow import disk
from infeed.components.kubeflow.message import pack
from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.cluster.job.disks import input_bytes, tight_disks

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def job() -> CompiledJob:
    return CompiledJob.read(GOLDEN / "kubeflow.yaml")


def limited(job: CompiledJob, node: str, **variables: str) -> CompiledJob:
    spec = json.loads(json.dumps(job.spec))
    container = spec["deploymentSpec"]["executors"][f"{node}_executor"]["container"]
    container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return dataclasses.replace(job, spec=spec)


def test_the_files_that_the_job_reads_are_compared_with_the_disks_of_their_readers(job: CompiledJob) -> None:
    data = str(GOLDEN / "project")
    assert input_bytes(job, data) == (GOLDEN / "project" / "flowers.csv").stat().st_size > 100
    small = limited(job, "Trainer", **{disk.LIMIT_VARIABLE: "100"})
    assert "too small for Trainer (100 B):" in tight_disks(small, lambda: input_bytes(small, data))
    for other in (
        job,
        limited(job, "Trainer", **{disk.LIMIT_VARIABLE: "100000"}),
        limited(job, "Pusher", **{disk.LIMIT_VARIABLE: "1"}),
        limited(job, "Trainer", **{disk.LIMIT_VARIABLE: "100", disk.READING_VARIABLE: "direct"}),
    ):
        assert tight_disks(other, lambda: input_bytes(job, data)) == ""


def test_of_an_input_with_spans_the_latest_count(job: CompiledJob, tmp_path: Path) -> None:
    for number in (8, 9, 10):
        (tmp_path / f"span-{number}.csv").write_bytes(b"x" * number)
    spec = json.loads(json.dumps(job.spec))
    custom = spec["root"]["dag"]["tasks"]["CsvExampleGen"]["inputs"]["parameters"]["custom_config"]["runtimeValue"]
    fields = json.loads(custom["constant"])
    options = json.loads(fields["custom_config"]["value"])
    options["options"]["spans"] = {"pattern": "span-{SPAN}.csv", "last": 2}
    fields["custom_config"]["value"] = json.dumps(options)
    custom["constant"] = pack(json.dumps(fields))
    assert input_bytes(dataclasses.replace(job, spec=spec), str(tmp_path)) == 19


def test_a_store_that_does_not_answer_stops_nobody(job: CompiledJob) -> None:
    def needed() -> int:
        raise InfeedError("no credentials", where="s3://bucket", do="log in")

    assert "no credentials" in tight_disks(limited(job, "Trainer", **{disk.LIMIT_VARIABLE: "100"}), needed)
