"""What a function cannot take is told with its line, the operation, the column and values of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tf_examples import serialize

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

SCHEMA = """
feature { name: "age" type: FLOAT presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
feature { name: "price" type: BYTES presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
"""
# `price` is text, of which one is no number: TensorFlow finds that when it runs, Python finds the other when it traces.
ON_DATA = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    price = tf.strings.to_number(inputs["price"])
    return {"price": tft.scale_to_z_score(price), "age": inputs["age"]}
"""
ON_TRACING = """
def preprocessing_fn(inputs):
    return {"sum": inputs["age"] + inputs["price"]}
"""


def records() -> list[bytes]:
    return [serialize({"age": age, "price": price}) for age, price in ((1.5, b"10.5"), (2.5, b"CHF 12"))]


@pytest.mark.parametrize(
    ("source", "what", "where"),
    [
        (
            ON_DATA,
            "preprocessing_fn fails on the data: .*could not correctly convert string: CHF 12",
            "own.py, line 6, in preprocessing_fn: 'price = tf.strings.to_number(inputs[\"price\"])'"
            "; operation StringToNumber (StringToNumber); column 'price' holds b'10.5', b'CHF 12'",
        ),
        (ON_TRACING, "TypeError: ", "; column 'age' holds 1.5, 2.5; column 'price' holds b'10.5', b'CHF 12'"),
    ],
    ids=["on the data", "while it is traced"],
)
def test_the_line_the_operation_and_some_values_are_told(
    tmp_path: Path, execute: Callable[..., Any], source: str, what: str, where: str
) -> None:
    from infeed.components.transform.component import Transform

    (tmp_path / "own.py").write_text(source)
    given = {"preprocessing_fn": f"{tmp_path}/own.py:preprocessing_fn", "disable_statistics": True}
    rows = [{"train": records(), "eval": records()}]
    with pytest.raises(InfeedError, match=what) as caught:
        execute(Transform, tmp_path / "out", rows, SCHEMA, **given, disable_analyzer_cache=True, materialize=False)
    assert re.search(re.escape(where), caught.value.where), caught.value.where
    assert caught.value.do
