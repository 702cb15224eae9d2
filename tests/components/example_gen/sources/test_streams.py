"""Pieces of text files; and an input that is opened by a sample, which is read as if all had been read before."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_sources import batches_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import planning
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import AstrayError, BadRow, BadRows, Findings, OpenedSource
from infeed.components.example_gen.planning import SpilledTask
from infeed.components.example_gen.sources import streams

# A process ends right after it has refused a file, again and again; forked, since imports take most of a second each.
REFUSE_AND_END = """
import gc, os, sys
from infeed.components.dataset.options import IngestOptions
from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.sources import csv_files
from infeed.components.example_gen.sources.csv_rows import CsvOptions

gc.freeze()
for _ in range({times}):
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        continue
    try:
        csv_files.scan({path!r}, CsvOptions(), IngestOptions())
    except InfeedError:
        sys.exit(2)
"""
TIMES = int(os.environ.get("INFEED_TEST_TIMES", "20"))  # one in four ended by SIGABRT


@pytest.mark.slow
def test_a_process_that_refuses_a_file_ends_as_it_should_every_time(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n3\n4,5\n")
    code = REFUSE_AND_END.format(times=TIMES, path=str(path))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["2"] * TIMES, "")


def test_what_is_lent_is_back_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def hold(thing: object) -> None:
        time.sleep(0.05)
        returned.append(time.monotonic())

    monkeypatch.setattr(streams, "_PATIENCE", 120.0)
    returned = list[float]()
    with streams.lending() as lend:
        threading.Thread(target=hold, args=[lend(np.zeros(3))]).start()
    assert returned
    assert time.monotonic() - returned[0] < 60  # it did not wait in vain


REJECT = IngestOptions(on_bad_row="reject", bad_row_limit=9_999, block_bytes=1024)
Outcome = tuple[pa.Schema, list[dict[str, Any]], list[BadRow]]


@contextmanager
def tasks_of(task_bytes: int) -> Iterator[None]:
    """Tasks, samples and windows are tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "SAMPLE_BYTES", 24)
        patch.setattr(streams, "span_bytes", lambda block_bytes: task_bytes)
        patch.setattr(streams, "_WINDOW_BYTES", 16)
        yield


def read_in_order(source: OpenedSource) -> Outcome:
    bad_rows = BadRows("reject", 9_999)
    batches = list(batches_of(source, bad_rows))
    return source.schema, pa.Table.from_batches(batches, source.schema).to_pylist(), list(bad_rows.take())


def read_apart(source: OpenedSource) -> Outcome:
    """Each task alone and pickled, as on workers, and what `ingest` does with what they found."""
    read = pickle.loads(pickle.dumps(source.read))
    batches, spilled, rejected = [], [], []
    for task in source.tasks:
        bad_rows = BadRows("reject", 9_999, relative=True)
        try:
            batches += list(read(task.payload, bad_rows=bad_rows))
        except AstrayError:
            bad_rows.found = Findings(astray=True)
        rejected.append(bad_rows.take())
        spilled.append(SpilledTask(task.order, 0, 0, 0, None, None, (), (), (), bad_rows.found))
    if source.sample is not None:
        planning.check_found([one.found for one in spilled if one.found], source.sample)
    offsets = planning.line_offsets((task.order, task.found) for task in spilled)
    bad = [BadRow(**json.loads(line)) for order, rows in enumerate(rejected) for line in lines_of(rows, offsets, order)]
    return source.schema, pa.Table.from_batches(batches, source.schema).to_pylist(), bad


def lines_of(rows: tuple[BadRow, ...], offsets: dict[int, int], order: int) -> list[str]:
    found = planning.shift_lines(planning.to_jsonl(rows), offsets.get(order, 0)) if rows else b""
    return found.decode().removesuffix("\n").split("\n") if found else []


def outcomes(path: str, kind: str, **options: Any) -> Iterator[Outcome | str]:
    """Of the input that is read whole for its types, and of the same by a sample."""
    yield outcome(lambda: read_in_order(open_source(path, kind, REJECT, options)))
    yield outcome(lambda: planning.settled(open_source(path, kind, REJECT, options, sampled=True), read_apart))


def outcome(read: Callable[[], Outcome]) -> Outcome | str:
    try:
        return read()
    except InfeedError as error:
        return str(error)


CELLS = st.one_of(
    st.integers(-99, 99).map(str),
    st.sampled_from(
        ["", "1.5", "x", "1_0", "99999999999999999999", "nan", 'a"b', "a,b", "two\nlines", "\r\n", '"', "\n\n1"]
    ),
    st.text(st.sampled_from('a,"\n1'), max_size=12),
)
ROWS = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=14)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)  # of 70 ms each
@given(rows=ROWS, task_bytes=st.integers(3, 60), line_end=st.sampled_from(["\n", "\r\n", "\r"]), data=st.data())
def test_a_csv_by_a_sample_is_the_csv_read_whole(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], task_bytes: int, line_end: str, data: st.DataObject
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["a", "b"], *rows])
    content = text.getvalue() + data.draw(st.sampled_from(["", "1\n", "1,2,3\n", "4,5", '6" pipe,7\n']))
    content = content.replace("\r", "").replace("\n", line_end)  # what is a line of a file that mixes the two?
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(content.encode())
    with tasks_of(task_bytes):
        whole, by_sample = outcomes(str(path), "csv")
    assert repr(by_sample) == repr(whole)


VALUES = st.one_of(
    st.none(),
    st.integers(-9, 9),
    st.just(0.5),
    st.just("x"),
    st.lists(st.integers(0, 2), max_size=2),
    st.just({"y": 1}),
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), min_size=1, max_size=14),
    task_bytes=st.integers(3, 60),
    broken=st.sampled_from(["", "{]\n", "\n\n"]),
)
def test_json_lines_by_a_sample_are_those_read_whole(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], task_bytes: int, broken: str
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + broken + '{"a": 1}\n')
    with tasks_of(task_bytes):
        whole, by_sample = outcomes(str(path), "jsonl")
    assert repr(by_sample) == repr(whole)
