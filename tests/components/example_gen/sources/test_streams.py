from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

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
