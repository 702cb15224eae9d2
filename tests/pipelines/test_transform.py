"""The rows of a project of thirty: the first ones, raw and transformed, and what a feature's values rest on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.splits import Buckets, assign_splits
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import resolve

pytestmark = pytest.mark.slow

CONFIG = """
source: csv
data: {folder}/rides.csv
label: tipped
features:
  - {{kind: z_score, column: fare}}
  - {{kind: bucketize, column: miles, buckets: 3, output: distance}}
  - {{kind: vocabulary, column: company, size: 2}}
  - {{kind: label, column: tipped}}
model: {folder}/model.py:build
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The path of its config file. In each tenth row the fare is missing."""
    rows = ["fare,miles,company,tipped"]
    companies = (*["Blue"] * 6, *["Red"] * 3, "Green")
    for number in range(600):  # smaller tables are divided exactly
        fare = "" if number % 10 == 4 else f"{number}.5"
        rows.append(f"{fare},{number % 7},{companies[number % 10]},{'yes' if number % 3 else 'no'}")
    (tmp_path / "rides.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "model.py").write_text("def build(shapes, options):\n    raise NotImplementedError\n")
    (tmp_path / "config.yaml").write_text(CONFIG.format(folder=tmp_path))
    return tmp_path / "config.yaml"


@pytest.fixture
def config(project: Path) -> PipelineConfig:
    return resolve(read_project(str(project)))


def training_rows(project: Path) -> list[int]:
    """Numbers of the rows that ExampleGen puts into the split train, from 1."""
    as_quantity = pyarrow.csv.ConvertOptions(column_types={"miles": pyarrow.float64()})
    (batch,) = pyarrow.csv.read_csv(project.with_name("rides.csv"), convert_options=as_quantity).to_batches()
    examples = encode_examples(batch, empty_lists=True).to_pylist()
    splits = assign_splits(iter(examples), Buckets((("train", 12), ("eval", 4), ("test", 4))))
    return [number for number, split in enumerate(splits, 1) if split == 0]


def test_rows_are_those_of_the_training_split_in_the_order_of_the_data(config: PipelineConfig, project: Path) -> None:
    from infeed.pipelines.transform import Analyzed

    numbers = training_rows(project)
    shown = Analyzed.of(config).first(4)
    assert [row.number for row in shown] == numbers[:4]
    assert [row.raw["fare"] for row in shown] == [None if n % 10 == 5 else n - 0.5 for n in numbers[:4]]


def test_values_are_made_with_the_constants_of_all_training_rows(config: PipelineConfig, project: Path) -> None:
    from infeed.pipelines.transform import Analyzed

    fares = np.array([n - 0.5 for n in training_rows(project) if n % 10 != 5])
    for row in Analyzed.of(config).first(600):
        fare = row.raw["fare"]
        expected = 0.0 if fare is None else (fare - fares.mean()) / fares.std()
        assert row.transformed["fare"] == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert row.transformed["company"] == {"Blue": 1, "Red": 2, "Green": 3}[row.raw["company"]]
        assert row.transformed["tipped"] == (row.raw["tipped"] == "yes")
        assert 1 <= row.transformed["distance"] <= 3


def test_a_feature_is_found_by_its_name_or_by_its_column(config: PipelineConfig) -> None:
    from infeed.pipelines.transform import Analyzed

    analyzed = Analyzed.of(config)
    assert analyzed.feature("distance") is analyzed.feature("miles")
    with pytest.raises(InfeedError, match="there is no feature 'fair'; did you mean 'fare'"):
        analyzed.feature("fair")


@pytest.fixture
def analyzed(project: Path):
    from infeed.pipelines.transform import Analyzed

    return Analyzed.of(resolve(read_project(str(project))))


def test_scaling_is_told_with_the_rows_that_shaped_it(analyzed) -> None:
    from infeed.pipelines.transform import explain

    rows = analyzed.first(600)
    fares = {row.raw["fare"]: row.number for row in rows if row.raw["fare"] is not None}
    missing = [row.number for row in rows if row.raw["fare"] is None]
    why = explain(analyzed, "fare")
    facts = dict(why.facts)
    mean = sum(fares) / len(fares)
    assert why.feature == "fare: ZScore(column='fare')"
    assert facts["made of"].startswith(f"{len(fares)} values of {len(rows)} training rows; {len(missing)} missing (")
    assert float(facts["mean"]) == pytest.approx(mean, rel=1e-5)
    assert facts["scaled by"].startswith(f"(value - {mean:.6g}) / ")
    assert facts["least in"] == f"row {fares[min(fares)]}: {min(fares):.6g}"
    assert facts["greatest in"] == f"row {fares[max(fares)]}: {max(fares):.6g}"
    assert facts["first missing in"] == f"row {', '.join(map(str, missing[:3]))}"
    assert why.shares == []


def test_a_vocabulary_is_told_with_its_words_and_their_shares(analyzed) -> None:
    from infeed.pipelines.transform import explain

    companies = [row.raw["company"] for row in analyzed.first(600)]
    why = explain(analyzed, "company")
    assert dict(why.facts)["different values"] == "3"
    told = {share.of: (share.index, share.count) for share in why.shares}
    assert told == {
        "Blue": (1, companies.count("Blue")),
        "Red": (2, companies.count("Red")),
        "": (3, companies.count("Green")),  # the place of all that are not in the vocabulary
    }
    assert sum(share.share for share in why.shares) == pytest.approx(1)


def test_buckets_are_told_with_their_bounds(analyzed) -> None:
    from infeed.pipelines.transform import explain

    miles = [row.raw["miles"] for row in analyzed.first(600)]
    why = explain(analyzed, "distance")
    first, middle, last = why.shares
    low, high = map(float, middle.of.split(" to "))
    assert (first.of, last.of) == (f"below {low:g}", f"{high:g} and above")
    assert first.count == sum(value < low for value in miles)
    assert last.count == sum(value >= high for value in miles)


def test_the_classes_of_a_label_are_told(analyzed) -> None:
    from infeed.pipelines.transform import explain

    assert {share.index: share.of for share in explain(analyzed, "tipped").shares} == {0: "no", 1: "yes"}
