"""What a feature's values rest on: how many rows, which of them stand out, and what becomes of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import resolve

pytestmark = pytest.mark.slow


@pytest.fixture
def analysed(project: Path):
    from infeed.pipelines.transform.preview import Analysed

    return Analysed.of(resolve(read_project(str(project))))


def test_scaling_is_told_with_the_rows_that_shaped_it(analysed) -> None:
    from infeed.pipelines.transform.why import explain

    rows = analysed.first(100)
    fares = {row.raw["fare"]: row.number for row in rows if row.raw["fare"] is not None}
    missing = [row.number for row in rows if row.raw["fare"] is None]
    why = explain(analysed, "fare")
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


def test_a_vocabulary_is_told_with_its_words_and_their_shares(analysed) -> None:
    from infeed.pipelines.transform.why import explain

    companies = [row.raw["company"] for row in analysed.first(100)]
    why = explain(analysed, "company")
    assert dict(why.facts)["different values"] == "3"
    told = {share.of: (share.index, share.count) for share in why.shares}
    assert told == {
        "Blue": (1, companies.count("Blue")),
        "Red": (2, companies.count("Red")),
        "": (3, companies.count("Green")),  # the place of all that are not in the vocabulary
    }
    assert sum(share.share for share in why.shares) == pytest.approx(1)


def test_buckets_are_told_with_their_bounds(analysed) -> None:
    from infeed.pipelines.transform.why import explain

    miles = [row.raw["miles"] for row in analysed.first(100)]
    why = explain(analysed, "distance")
    first, middle, last = why.shares
    low, high = map(float, middle.of.split(" to "))
    assert (first.of, last.of) == (f"below {low:g}", f"{high:g} and above")
    assert first.count == sum(value < low for value in miles)
    assert last.count == sum(value >= high for value in miles)


def test_the_classes_of_a_label_are_told(analysed) -> None:
    from infeed.pipelines.transform.why import explain

    assert {share.index: share.of for share in explain(analysed, "tipped").shares} == {0: "no", 1: "yes"}
