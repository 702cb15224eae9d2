"""Rows that the signature of raw features cannot take go through that of tf.Examples."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.encode import encode_examples
from infeed.components.evaluation.predictor import RawSignature, of_output


class Asked:
    """A signature that keeps what it is called with."""

    def __init__(self, **ranks: int) -> None:
        self.inputs = {name: SimpleNamespace(shape=SimpleNamespace(rank=rank)) for name, rank in ranks.items()}
        self.given: list[Any] = []

    def __call__(self, cells: Any) -> dict[str, Any]:
        self.given.append(cells)
        return {}


@pytest.mark.parametrize(
    ("cells", "by_example"),
    [
        ({"x": [1.0], "list": [[1, 2]]}, False),
        ({"x": [None], "list": [[1, 2]]}, True),
        ({"x": [[1.0, 2.0]], "list": [[1, 2]]}, True),
    ],
)
def test_what_the_raw_signature_cannot_take_is_asked_by_example(cells: Any, by_example: bool) -> None:
    raw, examples = Asked(x=1, list=2), Asked(examples=1)
    RawSignature(raw, examples)(cells)  # type: ignore[arg-type]
    assert (len(raw.given), len(examples.given)) == ((0, 1) if by_example else (1, 0))


def test_rows_that_raw_cannot_take_do_not_change_the_way_of_the_others() -> None:
    class Doubled(Asked):
        def __call__(self, cells: Any) -> dict[str, Any]:
            self.given.append(cells)
            rows = np.array([[len(str(cell))] for cell in next(iter(cells.values()))])
            return {"prediction": rows}

    raw, examples = Doubled(x=1, n=1), Doubled(examples=1)
    cells = {"x": [1.0, math.nan, 100.0], "n": [1, None, 3]}
    output = RawSignature(raw, examples)(cells)  # type: ignore[arg-type]
    assert raw.given == [{"x": [1.0, 100.0], "n": [1, 3]}]
    [record] = examples.given[0]["examples"]
    assert record == encode_examples(pa.RecordBatch.from_pydict({"x": [None], "n": [None]}))[0].as_py()
    assert output["prediction"].tolist() == [[3], [len(str(record))], [5]]


def test_the_tensors_of_an_output_are_under_its_name_or_below_it() -> None:
    outputs = {"price": 1, "sold/class": 2, "sold/probabilities": 3}
    assert of_output(outputs, "price") == {"price": 1}
    assert of_output(outputs, "sold") == {"class": 2, "probabilities": 3}
    assert of_output(outputs, "") == outputs
    assert of_output(outputs, "tags") == {}
