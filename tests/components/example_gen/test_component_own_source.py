"""The example of docs/sources.md, run as it stands there."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infeed.components.dataset import files, names, records
from infeed.components.dataset.manifest import Manifest

pytestmark = pytest.mark.tfx

PAGE = Path(__file__).parents[3] / "docs" / "sources.md"
LOG = """\
10.0.0.1 - - [20/Nov/2026:10:00:00 +0000] "GET /index.html HTTP/1.1" 200 512
10.0.0.2 - - [20/Nov/2026:10:00:01 +0000] "POST /login HTTP/1.1" 302 0
"""


def test_a_source_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Any) -> None:
    import tensorflow as tf

    (code,) = re.findall(r"## A source of your own.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 30
    (tmp_path / "access_log_source.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = importlib.import_module("access_log_source")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(LOG)
    execute(source.AccessLogExampleGen(input_base=f"{tmp_path}/logs"), tmp_path / "out")

    manifest = Manifest.read(f"{tmp_path}/out")
    assert (manifest.source.kind, manifest.rows_read) == ("access log", 2)
    found = Counter[tuple[bytes, int]]()
    for split in ("train", "eval"):
        for shard in files.list_files(names.split_dir(f"{tmp_path}/out", split)):
            for record in records.read_records(shard.path):
                features = tf.train.Example.FromString(record).features.feature
                page, status = features["request.page"].bytes_list.value[0], features["status"].int64_list.value[0]
                found[page, status] += 1
    assert found == {(b"/index.html", 200): 1, (b"/login", 302): 1}
