"""Windows of spans: each span is ingested once, and the dataset of a window is that of all its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions, Spans
from infeed.components.dataset.reading import check_listed
from infeed.components.dataset.statistics.table_statistics import stored_statistics
from infeed.components.example_gen.local import ingest
from infeed.components.example_gen.windows import SpanWindow, merge

Multiset = Callable[[str], dict[str, Counter[bytes]]]
OPTIONS = IngestOptions(fractions=("fare",), on_bad_row="reject", required=("fare",))


def write_span(data: Path, number: int, rows: int = 40) -> None:
    (data / f"span-{number}").mkdir(parents=True)
    lines = [f"{number * 100 + row}{'.5' if number == 2 else ''},{'ab'[row % 2]}" for row in range(rows)]
    (data / f"span-{number}" / "rows.csv").write_text("\n".join(["fare,kind", *lines, ",a"]) + "\n")


def ingest_rows(source: str, output: str) -> None:
    ingest(source, output, options=OPTIONS, source_options={"header": True}, workers=1)


def test_after_the_third_span_only_the_new_one_is_read(tmp_path: Path, multiset: Multiset) -> None:
    data, read = tmp_path / "data", list[str]()

    def ingest_span(pattern: str, root: str) -> None:
        read.append(pattern)
        ingest_rows(f"{data}/{pattern}", root)

    for number in (1, 2, 3):
        write_span(data, number)
        window = SpanWindow(Spans("span-{SPAN}/*.csv", cache=str(tmp_path / "spans")), str(data), {"options": 1})
        assert window.write(f"{tmp_path}/out-{number}", ingest_span) == number
    assert read == [f"span-{number}/*.csv" for number in (1, 2, 3)]
    ingest_rows(f"{data}/*/*.csv", f"{tmp_path}/whole")
    merged, whole = Manifest.read(f"{tmp_path}/out-3"), Manifest.read(f"{tmp_path}/whole")
    assert multiset(f"{tmp_path}/out-3") == multiset(f"{tmp_path}/whole")
    assert (merged.rows_read, merged.rejected, merged.schema) == (whole.rows_read, whole.rejected, whole.schema)
    for split in ("train", "eval"):
        assert constants(f"{tmp_path}/out-3", split) == constants(f"{tmp_path}/whole", split)
        check_listed(f"{tmp_path}/out-3/Split-{split}", {files.name(one.file) for one in merged.splits[split].shards})


def constants(root: str, split: str) -> Any:
    found = stored_statistics(root, split)
    assert found is not None
    fare, kind = found["fare"], found["kind"]
    return fare.rows, fare.missing, fare.minimum, fare.maximum, fare.mean, fare.variance, dict(kind.counts.items())


def test_a_window_rolls_and_other_settings_read_its_spans_again(tmp_path: Path) -> None:
    data, read = tmp_path / "data", list[str]()
    for number in (1, 2, 3):
        write_span(data, number)
    for settings in ({"options": 1}, {"options": 2}):
        spans = Spans("span-{SPAN}/*.csv", last=2, cache=str(tmp_path / "spans"))

        def ingest_span(pattern: str, root: str) -> None:
            read.append(pattern)
            ingest_rows(f"{data}/{pattern}", root)

        SpanWindow(spans, str(data), settings).write(f"{tmp_path}/out", ingest_span)
    assert read == ["span-2/*.csv", "span-3/*.csv"] * 2
    assert Manifest.read(f"{tmp_path}/out").rows_read == 82


def test_spans_in_a_store_are_copied_there(s3: str, tmp_path: Path, multiset: Multiset) -> None:
    for number in (1, 2):
        write_span(tmp_path, number)
        ingest_rows(f"{tmp_path}/span-{number}/rows.csv", f"{s3}/spans/{number}")
    merged = merge([f"{s3}/spans/1", f"{s3}/spans/2"], f"{s3}/out")
    assert Manifest.read(f"{s3}/out") == merged
    assert sum(sum(found.values()) for found in multiset(f"{s3}/out").values()) == 80
    assert files.read_bytes(f"{s3}/out/rejected.jsonl").count(b"\n") == 2


def test_a_column_of_two_types_is_an_error_that_names_it(tmp_path: Path) -> None:
    for name, cell in (("1", "2"), ("2", "x")):
        (tmp_path / f"{name}.csv").write_text("fare\n" + f"{cell}\n" * 5)
        ingest(tmp_path / f"{name}.csv", tmp_path / name, splits={"all": 1}, source_options={"header": True})
    with pytest.raises(InfeedError, match="'fare' is bytes") as caught:
        merge([str(tmp_path / "1"), str(tmp_path / "2")], str(tmp_path / "out"))
    assert caught.value.where == str(tmp_path / "2")


TWO_PROCESSES = """
import sys, time
from infeed.components.dataset.options import Spans
from infeed.components.example_gen.local import ingest
from infeed.components.example_gen.windows import SpanWindow
data, spans, out = sys.argv[1:]
def ingest_span(pattern, root):
    print(pattern, flush=True)
    time.sleep(1)
    ingest(f"{data}/{pattern}", root, source_options={"header": True}, workers=1)
sys.stdin.read(1)
SpanWindow(Spans("span-{SPAN}/*.csv", cache=spans), data, {}).write(out, ingest_span)
"""


@pytest.mark.slow
def test_of_two_processes_one_ingests_a_span_and_the_other_waits_for_it(tmp_path: Path) -> None:
    write_span(tmp_path, 1)
    command = [sys.executable, "-c", TWO_PROCESSES, str(tmp_path), str(tmp_path / "spans")]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([*command, str(tmp_path / f"out-{number}")], **pipes) for number in (1, 2)]
    for one in both:
        one.stdin.write("x")
        one.stdin.flush()
    ended = [(*one.communicate(), one.returncode) for one in both]
    assert sorted(ended) == [("", "", 0), ("span-1/*.csv\n", "", 0)]
    for number in (1, 2):
        assert Manifest.read(f"{tmp_path}/out-{number}").rows_read == 41
        assert sum(1 for _ in (tmp_path / f"out-{number}").glob("Split-*/*")) == 2


def test_spans_that_no_window_used_for_a_month_are_removed(tmp_path: Path) -> None:
    spans = Spans("span-{SPAN}/*.csv", last=1, cache=str(tmp_path / "spans"))
    for number in (1, 2, 3):
        write_span(tmp_path / "data", number)
        SpanWindow(spans, str(tmp_path / "data"), {}).write(
            f"{tmp_path}/out", lambda pattern, root: ingest_rows(f"{tmp_path}/data/{pattern}", root)
        )
        kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "spans").iterdir())
        assert kept == {1: ["1"], 2: ["2"], 3: ["2", "3"]}[number]
        for path in (tmp_path / "spans").glob("1-*"):
            os.utime(path, (0, 0))
