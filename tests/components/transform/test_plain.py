"""A function of the user's and declared features beside it become one graph and transformed rows, without TFX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.slow, pytest.mark.stack]


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    rows = [f"{number},{'yes' if number % 3 else 'no'}" for number in range(60)]
    (tmp_path / "rides.csv").write_text("\n".join(["fare,tipped", *rows]) + "\n")
    infeed.ingest(tmp_path / "rides.csv", tmp_path / "data")
    return str(tmp_path / "data")


def schema_of(dataset: str) -> Any:
    from infeed.components.statistics.inference import infer_schema

    return infer_schema(dataset, ["train", "eval"], map)


def test_features_and_a_function_make_one_graph_and_rows(dataset: str, tmp_path: Path) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.dataset.records import read_records
    from infeed.components.transform.kinds.label import Label
    from infeed.components.transform.plain import transform

    def scaled(columns: dict[str, Any]) -> dict[str, Any]:
        return {"fare": tft.scale_to_0_1(tf.cast(columns["fare"], tf.float32))}

    graph, rows = str(tmp_path / "graph"), tmp_path / "rows"
    (rows / "Split-train").mkdir(parents=True)  # with what a lost worker leaves
    (rows / "Split-train" / f".transformed_examples-00000-of-00001.gz.{'0a1b' * 8}").touch()
    transform(dataset, schema_of(dataset), [Label("tipped")], scaled, graph, str(rows))
    output = tft.TFTransformOutput(graph)
    assert set(output.transformed_feature_spec()) == {"fare", "tipped"}
    [file] = (rows / "Split-train").iterdir()
    parsed = tf.io.parse_example(list(read_records(str(file))), output.transformed_feature_spec())
    fares = np.sort(parsed["fare"].numpy().reshape(-1))
    assert (fares[0], fares[-1]) == (0.0, 1.0)
    assert set(parsed["tipped"].numpy().reshape(-1)) == {0, 1}


def test_an_analyzer_of_beam_is_refused(dataset: str, tmp_path: Path) -> None:
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.plain import transform

    def on_beam(columns: dict[str, Any]) -> dict[str, Any]:
        top = beam.combiners.Top.Largest(1)
        [largest] = tft.experimental.ptransform_analyzer([columns["fare"]], top, [tf.float32], [[]])
        return {"fare": tf.cast(columns["fare"], tf.float32) - largest}

    with pytest.raises(InfeedError, match="only tft on Beam") as error:
        transform(dataset, schema_of(dataset), [], on_beam, str(tmp_path / "graph"))
    assert error.value.where == "preprocessing_fn"
