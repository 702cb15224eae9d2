"""Declared features and a function of the user's own, as one that tft runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import Fill
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.scale import ZScore

pytestmark = pytest.mark.tfx

Function = Callable[[Any], Any]


def transform(
    columns: Mapping[str, Sequence[Any]], features: Sequence[Feature], own: Function, folder: Path
) -> dict[str, np.ndarray]:
    """The transformed features of the rows that were analyzed, [rows, ...] each."""
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    from infeed.components.transform.columns import TracedPass, analyze
    from infeed.components.transform.declared import make_preprocessing_fn

    types = {int: tf.int64, bytes: tf.string}
    spec = {name: tf.io.FixedLenFeature([1], types[type(column[0])]) for name, column in columns.items()}
    raw = {name: tf.constant(column)[:, tf.newaxis] for name, column in columns.items()}
    raw = {name: tf.cast(tensor, spec[name].dtype) for name, tensor in raw.items()}
    function = make_preprocessing_fn(
        features, own, analyze(features, lambda one: TracedPass(one).over([raw]), {}), str(folder / "vocabularies")
    )
    rows = [
        {name: [value] for name, value in zip(columns, row, strict=True)} for row in zip(*columns.values(), strict=True)
    ]
    metadata = tft.DatasetMetadata.from_feature_spec(spec)
    with tft_beam.Context(temp_dir=str(folder)):
        (transformed, _), graph = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(function)
        graph | tft_beam.WriteTransformFn(str(folder / "graph"))
    return {name: np.array([row[name] for row in transformed]) for name in transformed[0]}


def doubled(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """A user's preprocessing_fn."""
    return {"twice": inputs["x"] * 2}


def test_both_give_features_and_vocabularies_are_kept(tmp_path: Path) -> None:
    import tensorflow_transform as tft

    features = [ZScore("x"), Vocabulary("city")]
    both = transform({"x": [1, 3], "city": [b"Bern", b"Basel"]}, features, doubled, tmp_path)
    assert both["x"].tolist() == [[-1], [1]]
    assert both["city"].tolist() == [[1], [2]]
    assert both["twice"].tolist() == [[2], [6]]
    assert tft.TFTransformOutput(str(tmp_path / "graph")).vocabulary_by_name("city") == [b"Bern", b"Basel"]


def test_one_name_from_both_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="both return twice"):
        transform({"x": [1, 2]}, [Fill("x", 0, output="twice")], doubled, tmp_path)


def test_a_graph_tells_the_formats_of_the_dates_in_text(tmp_path: Path) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.trainer.graph import open_graph
    from infeed.components.transform.columns import TracedPass, analyze
    from infeed.components.transform.declared import write_graph

    features = [
        ZScore("day", output="days", clean=(DatePart("days", "%d.%m.%Y"),)),
        ZScore("day", output="year", clean=(DatePart("year"),)),
        ZScore("at", clean=(DatePart("days", "epoch_s"),)),
    ]
    spec = {"day": tf.io.FixedLenFeature([1], tf.string), "at": tf.io.FixedLenFeature([1], tf.int64)}
    rows = {"day": tf.constant([["28.09.2024"], ["2024-09-29"]]), "at": tf.constant([[0], [9]], tf.int64)}
    schema = tft.DatasetMetadata.from_feature_spec(spec).schema
    (tmp_path / "vocabularies").mkdir()
    found = analyze(features, lambda one: TracedPass(one).over([rows]), {})
    write_graph(str(tmp_path / "graph"), features, schema, found, str(tmp_path / "vocabularies"))
    assert open_graph(str(tmp_path / "graph"), None, "at").date_formats == {"day": ["%d.%m.%Y", "iso"]}
