"""Anomalies found in parts of the columns are those that TFDV finds in the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tfx

RANDOM = np.random.default_rng(0)


def statistics(columns: dict[str, Any]) -> Any:
    import pandas as pd
    import tensorflow_data_validation as tfdv

    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns))


def columns() -> dict[str, Any]:
    kinds = [RANDOM.normal(size=40), RANDOM.integers(0, 9, 40), RANDOM.choice(["a", "b", "c"], 40)]
    return {f"c{place}": kinds[place % 3] for place in range(24)}


@pytest.mark.parametrize("size", [1, 7, 23])
def test_parts_have_the_anomalies_of_the_whole(size: int) -> None:
    import tensorflow_data_validation as tfdv

    from infeed.components.statistics.validation import validate

    schema = tfdv.infer_schema(statistics(columns()))
    schema.dataset_constraints.min_examples_count = 1_000
    changed = {**columns(), "c2": ["new"] * 40, "c1": ["text"] * 40, "c8": [None] * 40, "extra": [1] * 40}
    del changed["c5"]
    found = validate(statistics(changed), schema, size)
    whole = tfdv.validate_statistics(statistics(changed), schema)
    assert {"c1", "c2", "c5", "extra"} <= set(whole.anomaly_info)
    assert found == whole
    assert validate(statistics(columns()), schema, size).HasField("dataset_anomaly_info")


def test_features_that_depend_on_each_other_are_validated_as_a_whole() -> None:
    import tensorflow_data_validation as tfdv

    from infeed.components.statistics.validation import validate

    schema = tfdv.infer_schema(statistics(columns()))
    sparse = schema.sparse_feature.add(name="sparse")
    sparse.index_feature.add(name="c1")
    sparse.value_feature.name = "c0"
    assert validate(statistics(columns()), schema, 3) == tfdv.validate_statistics(statistics(columns()), schema)
