from __future__ import annotations

from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.predictions.layout import PredictOptions


def test_keys_come_before_columns() -> None:
    options = PredictOptions(keys=["id"], columns=["tags", "x"])  # type: ignore[arg-type]
    assert options.carried == ("id", "tags", "x")


def test_options_survive_the_way_through_plain_data() -> None:
    options = PredictOptions("raw", ("id",), outputs={"score": "prediction"}, splits=("eval",), batch_size=7)
    assert schema.read(PredictOptions, schema.to_plain(options)) == options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"keys": "id"}, "keys is 'id'(?s:.*)use a list of names"),
        ({"signature": ""}, "signature is ''"),
        ({"splits": ()}, r"splits is \(\)"),
        ({"output_format": "csv"}, "output_format is 'csv'"),
        ({"keys": ("id",), "columns": ("id",)}, "column 'id' occurs twice"),
        ({"keys": ("id",), "output_format": "examples"}, "examples contains the whole"),
        (
            {"outputs": {"a": "b"}, "output_format": "prediction_log"},
            "outputs is set, but prediction_log contains",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        PredictOptions(**given)
