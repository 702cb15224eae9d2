"""Rows as an evaluation sees them: batches of examples, and what a model predicts of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples
from infeed.components.evaluation.batches import Batch
from infeed.components.evaluation.model_report.collected import Collected
from infeed.components.evaluation.model_report.findings import ModelFindings
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.pairs import Observed

Array = npt.NDArray[Any]
Collect = Callable[..., Collected]


def _collected(
    report: ModelReport,
    records: Sequence[bytes],
    labels: Array,
    *predictions: Array,
    batch: int = 100,
    path: str = "data/Split-eval/shard-0",
) -> Collected:
    """What a report keeps of rows that arrive in batches, as the model and perhaps a baseline predict them."""
    found = Collected()
    for start in range(0, len(records), batch):
        part = slice(start, start + batch)
        observed = {
            name: Observed(len(records[part]), labels[part].reshape(len(records[part]), -1), one[part], None)
            for name, one in zip(("", "baseline"), predictions, strict=False)
        }
        found.add(Batch(path, start, records[part]), observed, report)
    return found


@pytest.fixture(scope="session")
def collect() -> Collect:
    return _collected


@pytest.fixture(scope="session")
def records() -> list[bytes]:
    """3,000 rows with the columns a, b, c and city."""
    draw = np.random.default_rng(3)
    columns = {name: pa.array(draw.normal(size=3000), pa.float32()) for name in ("a", "b", "c")}
    cities = draw.choice(["Bern", "Chur", "Genf"], 3000)
    table = pa.RecordBatch.from_pydict({**columns, "city": pa.array(cities, pa.string())})
    found: list[bytes] = encode_examples(table).to_pylist()
    return found


def scores_of(records: Sequence[bytes]) -> Array:
    """Probabilities of two classes, by a formula of a and b."""
    columns = decode_columns(records)
    a, b = (columns[name].flatten().to_numpy(zero_copy_only=False) for name in ("a", "b"))
    second = 1 / (1 + np.exp(-(2 * a + b)))
    return np.stack([1 - second, second], axis=1)


@pytest.fixture(scope="session")
def predict() -> Callable[[Sequence[bytes]], Array]:
    return scores_of


@pytest.fixture(scope="session")
def two_classes(records: list[bytes]) -> tuple[Array, Array]:
    """Labels that follow the probabilities, except that Chur has coins instead, and the probabilities."""
    draw, scores = np.random.default_rng(4), scores_of(records)
    labels = (draw.random(3000) < scores[:, 1]).astype(np.int64)
    cities = np.array([city[0] for city in decode_columns(records)["city"].to_pylist()])
    return np.where(cities == b"Chur", draw.integers(0, 2, 3000), labels), scores


@pytest.fixture(scope="session")
def sets(records: list[bytes]) -> tuple[Array, Array]:
    """Labels [rows, 4] that follow probabilities of a, b, c and their sum, and these probabilities."""
    columns = decode_columns(records)
    numbers = np.stack([columns[name].flatten().to_numpy(zero_copy_only=False) for name in ("a", "b", "c")], axis=1)
    scores = 1 / (1 + np.exp(-2 * np.concatenate([numbers, numbers.sum(axis=1, keepdims=True) - 4], axis=1)))
    return (np.random.default_rng(5).random((3000, 4)) < scores).astype(np.float32), scores


@pytest.fixture(scope="session")
def findings_of_sets(records: list[bytes], sets: tuple[Array, Array]) -> ModelFindings:
    """Of sets of four classes, with a baseline that knows nothing of the last one."""
    labels, scores = sets
    report = ModelReport("multilabel", ("big", "old", "red", "rare"), threshold=0.4, metrics=("f1", "recall"))
    found = _collected(report, records, labels, scores, scores * [1, 1, 1, 0])
    predict = lambda given: np.tile([0.3, 0.3, 0.3, 0.1], (len(given), 1))  # noqa: E731
    return ModelFindings.of(report, found, ["label"], ["a", "b", "c", "city"], predict)


@pytest.fixture(scope="session")
def findings(records: list[bytes], two_classes: tuple[Array, Array]) -> ModelFindings:
    """Of two classes, with a baseline that predicts more cautiously."""
    labels, scores = two_classes
    report = ModelReport("classification", ("no", "yes"))
    found = _collected(report, records, labels, scores, 0.5 + 0.2 * (scores - 0.5))
    return ModelFindings.of(report, found, ["label"], ["a", "b", "c", "city"], scores_of)
