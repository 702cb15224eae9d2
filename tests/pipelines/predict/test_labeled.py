from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import read_records
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.predict.labeled import write_labeled
from infeed.pipelines.surveys import TableSurvey

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, save: Callable[..., Path]) -> Path:
    """A model of the columns zip, which is text, n and x, trained on files with `;` between the cells."""
    import tensorflow as tf

    spec = {"n": tf.int64, "x": tf.float32, "zip": tf.string}
    types = {"n": "int", "x": "float", "zip": "bytes", "y": "int"}
    described = {"columns": list(spec), "types": types, "source_options": {"csv": {"delimiter": ";"}}}
    return save(tmp_path_factory.mktemp("model"), spec, lambda features: {"prediction": features["x"]}, **described)


def labels_of(config: PipelineConfig, kind: str, **ingest: Any) -> PipelineConfig:
    assert isinstance(config.survey, TableSurvey)
    survey = replace(config.survey, label=replace(config.survey.label, type=kind))
    return replace(config, survey=survey, ingest=IngestOptions(labeled=("y",), **ingest))


def columns(root: Path, config: PipelineConfig) -> dict[str, list[Any]]:
    [shard] = (root / f"Split-{config.judged_on}").iterdir()
    return {name: column.to_pylist() for name, column in decode_columns(list(read_records(str(shard)))).items()}


def test_cells_have_the_types_of_training_and_rows_without_a_label_are_left_out(
    model: Path, taxi: PipelineConfig, tmp_path: Path
) -> None:
    rows = "id;zip;n;x;y\n007;01234;1;0.5;1\n008;00042;;;0\n009;99999;3;1.5;\n010;;4;2;0\n"
    (tmp_path / "new.csv").write_text(rows)
    config = labels_of(taxi, "int")
    manifest = write_labeled(str(model), str(tmp_path / "new.csv"), config, str(tmp_path / "out"))
    assert (manifest.rows_read, manifest.filtered, manifest.rejected.rows) == (4, 1, 0)
    assert columns(tmp_path / "out", config) == {
        "id": [[b"007"], [b"008"], [b"010"]],
        "zip": [[b"01234"], [b"00042"], None],
        "n": [[1], None, [4]],
        "x": [[0.5], None, [2.0]],
        "y": [[1], [0], [0]],
    }


@pytest.mark.parametrize(
    ("cells", "place", "reason"),
    [("01234;1;abc;1", "row 2", "'abc' is not a number"), ("01234;1;1;1.5", "row 2", "'1.5' is not a whole number")],
)
def test_a_cell_that_does_not_fit_is_reported_by_row(
    model: Path, taxi: PipelineConfig, tmp_path: Path, cells: str, place: str, reason: str
) -> None:
    (tmp_path / "new.csv").write_text(f"zip;n;x;y\n1;1;1;1\n{cells}\n")
    asked = str(model), str(tmp_path / "new.csv")
    with pytest.raises(InfeedError, match=reason) as raised:
        write_labeled(*asked, labels_of(taxi, "int"), str(tmp_path / "out"))
    assert raised.value.where == f"{tmp_path / 'new.csv'}, {place}"
    manifest = write_labeled(*asked, labels_of(taxi, "int", on_bad_row="reject"), str(tmp_path / "out"))
    assert (manifest.rows_read, manifest.rejected.rows) == (2, 1)
    [rejected] = map(json.loads, (tmp_path / "out" / "rejected.jsonl").read_text().splitlines())
    assert reason in rejected["reason"]


def test_truth_values_of_a_label_are_the_words_of_ingest(
    model: Path, taxi: PipelineConfig, tmp_path: Path, describe: Any
) -> None:
    model = shutil.copytree(model, tmp_path / "model")
    describe(model / "1", {"columns": ["n", "x", "zip"], "types": {"y": "bytes"}, "source_options": {}})
    table = pa.table({"zip": ["a", "b"], "n": [1, 2], "x": [1.0, 2.0], "y": [True, False]})
    pq.write_table(table, tmp_path / "new.parquet")
    config = labels_of(taxi, "bytes", words=("y",))
    write_labeled(str(model), str(tmp_path / "new.parquet"), config, str(tmp_path / "out"))
    assert columns(tmp_path / "out", config)["y"] == [[b"true"], [b"false"]]


@pytest.mark.parametrize(
    ("file", "text"), [("new.csv", "zip;n;x\n1;1;1\n"), ("new.jsonl", '{"zip": "1", "n": 1, "x": 1}\n')]
)
def test_a_column_that_is_missing_is_named(
    model: Path, taxi: PipelineConfig, tmp_path: Path, file: str, text: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(InfeedError, match="'y'") as raised:
        write_labeled(str(model), str(tmp_path / file), labels_of(taxi, "int"), str(tmp_path / "out"))
    assert raised.value.where == str(tmp_path / file)
