"""What the report finds of rows and pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples
from infeed.components.evaluation.model_report.findings import ModelFindings, likely_confusions
from infeed.components.evaluation.model_report.options import ModelReport


def test_columns_that_matter_and_the_bad_group_are_found(findings: ModelFindings) -> None:
    assert [one.column for one in findings.importances][:2] == ["a", "b"]
    assert {(group.column, group.values) for group in findings.groups.worst} >= {("city", "Chur")}
    assert findings.both is not None
    assert findings.both.sum() == 3000
    assert likely_confusions(findings)[0][2] == max(findings.sums.matrix[0, 1], findings.sums.matrix[1, 0])


def test_the_worst_row_shows_the_most_important_columns_first(findings: ModelFindings) -> None:
    worst = findings.worst[0]
    assert list(worst.cells)[:2] == ["a", "b"]
    assert worst.predicted.startswith("no (" if worst.label == "yes" else "yes (")
    assert worst.loss >= findings.worst[1].loss


def test_pictures_become_thumbnails(collect: Callable[..., Any]) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (400, 300), "red").save(picture, "PNG")
    pictures = pa.array([picture.getvalue(), b"\x89PNG but damaged"], pa.binary())
    records = encode_examples(pa.RecordBatch.from_pydict({"image": pictures})).to_pylist()
    report = ModelReport("classification", ("dog", "cat"))
    found = collect(report, records, np.array([0, 1]), np.array([[0.1], [0.7]]))
    second, first = ModelFindings.of(report, found, ["label"], ["image"], lambda _: np.zeros((0, 1))).worst
    kind, data = first.picture.split(";base64,")
    assert kind == "data:image/jpeg"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (160, 120)
    assert first.predicted == "dog (90 %)"
    assert second.picture == ""


def test_a_column_that_is_the_label_in_other_words_is_left_out(
    collect: Callable[..., Any], records: list[bytes]
) -> None:
    """Such as the word of a class whose number the model learns from."""
    cities = [one[0] for one in decode_columns(records)["city"].to_pylist()]
    labels = np.array([sorted(set(cities)).index(city) for city in cities])
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 3000)
    report = ModelReport("classification")
    collected = collect(report, records, labels, scores)
    found = ModelFindings.of(report, collected, ["number"], ["a", "b"], lambda some: scores[: len(some)])
    assert "city" not in found.worst[0].cells
    assert not [group for group in found.groups.worst if group.column == "city"]
    read = ModelFindings.of(report, collected, ["number"], ["a", "city"], lambda some: scores[: len(some)])
    assert "city" in read.worst[0].cells
