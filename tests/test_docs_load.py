"""The loops of docs/load.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset import records
from infeed.components.dataset.encode import encode_examples
from infeed.components.load.dataset import LoadedDataset, load

PAGE = (Path(__file__).parents[1] / "docs" / "load.md").read_text()
LOOPS = dict(re.findall(r"^(NumPy|JAX|PyTorch|Keras)\b.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
MARKS = {"NumPy": (), "JAX": pytest.mark.frameworks, "PyTorch": pytest.mark.frameworks, "Keras": pytest.mark.slow}


@pytest.fixture
def data(tmp_path: Path) -> LoadedDataset:
    """y = 2 * x1 - x2."""
    x1, x2 = np.random.default_rng(0).normal(size=(2, 640)).astype(np.float32)
    batch = pa.record_batch([pa.array(x1), pa.array(x2), pa.array(2 * x1 - x2)], ["x1", "x2", "y"])
    path = str(tmp_path / "line-train.tfrecord")
    records.write_records(path, [records.frame_records(encode_examples(batch))], gzip_level=None)
    return load(path, batch_size=64, seed=1, cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize("framework", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
def test_a_loop_of_the_page_learns_the_line(data: LoadedDataset, framework: str) -> None:
    names: dict[str, Any] = {"data": data}
    exec(compile(LOOPS[framework], "docs/load.md", "exec"), names)
    if framework == "Keras":
        loss = names["model"].evaluate({"x1": np.ones(4), "x2": np.ones(4)}, np.ones(4), verbose=0)
        assert np.isfinite(loss)
    else:
        weights = names["weights"]
        found = weights.detach().numpy() if framework == "PyTorch" else np.asarray(weights)
        assert np.allclose(found, [2, -1], atol=0.1)


def test_the_page_has_a_loop_for_each() -> None:
    assert LOOPS.keys() == MARKS.keys()
