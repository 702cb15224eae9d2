"""TFRecords written without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.dataset import records
from infeed.components.dataset.encode import encode_examples

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write("a-train.tfrecord", {"x": [1, 2]}) -> the path of a file of tf.Examples; or of the payloads given."""

    def written(name: str, rows: Mapping[str, Any] | list[bytes]) -> str:
        path = tmp_path / "data" / name
        if isinstance(rows, list):
            payloads = pa.array(rows, pa.large_binary())
        else:
            columns = [one if isinstance(one, pa.Array) else pa.array(one) for one in rows.values()]
            payloads = encode_examples(pa.record_batch(columns, list(rows)))
        gzip = 1 if name.endswith(".gz") else None
        records.write_records(str(path), [records.frame_records(payloads)], gzip_level=gzip)
        return str(path)

    return written


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "cache")
