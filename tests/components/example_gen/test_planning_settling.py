"""Types by a sample: the dataset is that of types over the whole input, on every engine, by one reading or two."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import names
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.engine.beam_runner import LOCAL_RUNNER, Named
from infeed.components.engine.on_beam import OnBeam
from infeed.components.engine.processes import Processes
from infeed.components.example_gen import ingest
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.planning import settled
from infeed.components.example_gen.sources import csv_files, streams

MakeJob = Callable[..., Job]
OPTIONS = IngestOptions(block_bytes=1024)
REJECT = IngestOptions(block_bytes=1024, on_bad_row="reject", bad_row_limit=100)
SAMPLE = 4096


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SAMPLE_BYTES", SAMPLE)
    monkeypatch.setattr(csv_files, "_HEADER_BYTES", 256)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each piece that is read of an input."""
    read: list[int] = []
    pieces = streams._pieces

    def counted(*args: Any) -> Iterator[bytes]:
        for piece in pieces(*args):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(streams, "_pieces", counted)
    return read


def table(folder: Path, kind: str, last: Any = 7, bad: tuple[int, ...] = ()) -> Path:
    """2,000 rows: a number, a text with line breaks, and a number that is `last` in the last row; some are bad."""
    path = folder / f"t.{kind}"
    with open(path, "w", newline="") as file:
        file.write("n,text,late\n" if kind == "csv" else "")
        for row in range(2_000):
            late = last if row == 1_999 else row
            if row in bad:
                file.write("oops\n")
            elif kind == "csv":
                file.write(f'{row},"two, ""or""\n\nthree {row}",{late}\n')
            else:
                file.write(json.dumps({"n": row, "text": "two\nlines", "late": late}) + "\n")
    return path


def content(root: str) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


def written(
    path: Path, options: IngestOptions, job: MakeJob, *, sampled: bool, run: Any = ingest.ingest
) -> dict[str, str]:
    """The files of the dataset."""

    def attempt(source: OpenedSource) -> str:
        one = job(source, options)
        run(source.tasks, one)
        return one.root

    return content(settled(open_source(str(path), path.suffix[1:], options, {}, sampled=sampled), attempt))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_input_whose_sample_shows_its_types_is_read_once(
    tmp_path: Path, kind: str, job: MakeJob, readings: list[int]
) -> None:
    path = table(tmp_path, kind)
    dataset = written(path, OPTIONS, job, sampled=True)
    assert sum(readings) < path.stat().st_size + 4 * SAMPLE
    assert dataset == written(path, OPTIONS, job, sampled=False)


@pytest.mark.parametrize(("kind", "last"), [("csv", "x"), ("csv", "0.5"), ("jsonl", 0.5)])
def test_a_value_that_only_the_last_row_holds_costs_a_second_reading(
    tmp_path: Path, kind: str, last: Any, job: MakeJob, readings: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    path = table(tmp_path, kind, last)
    with caplog.at_level(logging.WARNING):
        dataset = written(path, OPTIONS, job, sampled=True)
    assert "'late'" in caplog.text
    assert sum(readings) < 2 * path.stat().st_size + 6 * SAMPLE
    assert dataset == written(path, OPTIONS, job, sampled=False)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rejected_rows_keep_their_lines(tmp_path: Path, kind: str, job: MakeJob) -> None:
    path = table(tmp_path, kind, 0.5, bad=(3, 900, 901, 1_998))
    dataset = written(path, REJECT, job, sampled=True)
    rejects = [json.loads(line)["line"] for line in (tmp_path / "out" / names.REJECTS).read_text().splitlines()]
    lines = path.read_text().split("\n")
    assert [lines[line - 1] for line in rejects] == ["oops"] * 4
    assert dataset == written(path, REJECT, job, sampled=False)


@pytest.mark.parametrize("options", [OPTIONS, IngestOptions(block_bytes=1024, on_bad_row="reject", bad_row_limit=0)])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_error_names_the_line_in_the_file(tmp_path: Path, kind: str, options: IngestOptions, job: MakeJob) -> None:
    path = table(tmp_path, kind, bad=(1_500,))
    line = path.read_text().split("\n").index("oops") + 1
    with pytest.raises(InfeedError) as raised:
        written(path, options, job, sampled=True)
    assert raised.value.where.endswith(f"{path}, line {line}")


def test_a_quote_that_never_closes_is_found_by_the_task_that_reads_the_end(tmp_path: Path, job: MakeJob) -> None:
    path = table(tmp_path, "csv")
    lines = path.read_text().count("\n")
    with open(path, "a") as file:
        file.write('1,"open,2\n')
    with pytest.raises(InfeedError, match="never closed") as raised:
        written(path, OPTIONS, job, sampled=True)
    assert raised.value.where == f"{path}, line {lines + 1}"


def test_options_that_fit_the_whole_input_and_not_its_sample_are_right(tmp_path: Path, job: MakeJob) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n' * 2_000 + '{"n": 2, "late": 5}\n' * 3)
    options = IngestOptions(block_bytes=1024, filter="late > 1")
    assert written(path, options, job, sampled=True) == written(path, options, job, sampled=False)
    with pytest.raises(InfeedError, match="latte"):
        written(path, IngestOptions(block_bytes=1024, filter="latte > 1"), job, sampled=True)


@pytest.mark.slow
def test_several_processes_write_the_same(tmp_path: Path, job: MakeJob) -> None:
    path = table(tmp_path, "csv", "x", bad=(900,))
    expected = written(path, REJECT, job, sampled=False)
    with Processes(2) as engine:

        def run(tasks: Any, one: Job) -> Manifest:
            return ingest.ingest(tasks, one, map_fn=engine.map)

        assert written(path, REJECT, job, sampled=True, run=run) == expected


@pytest.mark.tfx
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_beam_writes_the_same(tmp_path: Path, kind: str, job: MakeJob) -> None:
    import apache_beam as beam

    path = table(tmp_path, kind, 0.5, bad=(900, 1_700))
    expected = written(path, REJECT, job, sampled=False)

    def run(tasks: Any, one: Job) -> None:
        with OnBeam(lambda: beam.Pipeline(LOCAL_RUNNER, argv=[]), one.temporary, Named()) as engine:
            ingest.ingest(tasks, one, map_fn=engine.map)

    assert written(path, REJECT, job, sampled=True, run=run) == expected
