"""The first training rows, raw and transformed, with the constants that a run would find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.splits import Buckets, assign_splits
from infeed.components.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import resolve

pytestmark = pytest.mark.slow


@pytest.fixture
def config(project: Path) -> PipelineConfig:
    return resolve(read_project(str(project)))


def training_rows(project: Path) -> list[int]:
    """Numbers of the rows that ExampleGen puts into the split train, from 1."""
    (batch,) = pyarrow.csv.read_csv(project.with_name("rides.csv")).to_batches()
    examples = encode_examples(batch).to_pylist()
    splits = assign_splits(iter(examples), Buckets((("train", 2), ("eval", 1))))
    return [number for number, split in enumerate(splits, 1) if split == 0]


def test_rows_are_those_of_the_training_split_in_the_order_of_the_data(config: PipelineConfig, project: Path) -> None:
    from infeed.pipelines.transform.preview import Analysed

    numbers = training_rows(project)
    shown = Analysed.of(config).first(4)
    assert [row.number for row in shown] == numbers[:4]
    assert [row.raw["fare"] for row in shown] == [None if n % 10 == 5 else n - 0.5 for n in numbers[:4]]


def test_values_are_made_with_the_constants_of_all_training_rows(config: PipelineConfig, project: Path) -> None:
    from infeed.pipelines.transform.preview import Analysed

    fares = np.array([n - 0.5 for n in training_rows(project) if n % 10 != 5])
    for row in Analysed.of(config).first(100):
        fare = row.raw["fare"]
        expected = 0.0 if fare is None else (fare - fares.mean()) / fares.std()
        assert row.transformed["fare"] == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert row.transformed["company"] == {"Blue": 1, "Red": 2, "Green": 3}[row.raw["company"]]
        assert row.transformed["tipped"] == (row.raw["tipped"] == "yes")
        assert 1 <= row.transformed["distance"] <= 3


def test_a_feature_is_found_by_its_name_or_by_its_column(config: PipelineConfig) -> None:
    from infeed.pipelines.transform.preview import Analysed

    analysed = Analysed.of(config)
    assert analysed.feature("distance") is analysed.feature("miles")
    with pytest.raises(InfeedError, match="there is no feature 'fair'; did you mean 'fare'"):
        analysed.feature("fair")
