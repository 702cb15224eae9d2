"""Evaluator beside the other components in TFX's LocalDagRunner: each works on a named runner of external workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.image]  # here `test_component_engines` of each

NODES = ("CsvExampleGen", "StatisticsGen", "Transform", "Evaluator", "BulkInferrer")


@pytest.fixture
def pipeline(
    tmp_path: Path, trees: pa.RecordBatch, examples: Any, model: Any, portable_options: list[str], build: ModuleType
) -> Any:
    """The components of NODES. Only CsvExampleGen reads Examples that ingest has counted."""
    import tfx.v1 as tfx
    from tfx.components import SchemaGen
    from tfx.dsl.components.common.importer import Importer
    from tfx.orchestration.metadata import sqlite_metadata_connection_config
    from tfx.proto import transform_pb2

    from infeed import components
    from infeed.components.transform.kinds.scale import ZScore

    (tmp_path / "csv").mkdir()
    pyarrow.csv.write_csv(pa.Table.from_batches([trees]).drop(["birds"]), tmp_path / "csv" / "trees.csv")
    splits = {"split_names": '["eval"]'}
    given = Importer(examples.uri, tfx.types.standard_artifacts.Examples, properties=splits).with_id("Given")
    asked = Importer(model.uri, tfx.types.standard_artifacts.Model).with_id("Asked")
    rows, answers = {"examples": given.outputs["result"]}, {"model": asked.outputs["result"]}
    statistics = components.StatisticsGen(**rows)
    schema = SchemaGen(statistics=statistics.outputs["statistics"])
    transform = components.Transform(
        **rows,
        schema=schema.outputs["schema"],
        features=[ZScore("height", clean=()), ZScore("girth", key="city")],
        splits_config=transform_pb2.SplitsConfig(analyze=["eval"], transform=["eval"]),
        materialize=True,
    )
    nodes = [components.CsvExampleGen(input_base=str(tmp_path / "csv")), given, asked, statistics, schema, transform]
    nodes += [
        components.Evaluator(**rows, **answers, eval_config=build.eval_config()),
        components.BulkInferrer(**rows, **answers, output_format="parquet"),
    ]
    return tfx.dsl.Pipeline(
        pipeline_name="trees",
        pipeline_root=str(tmp_path / "root"),
        components=nodes,
        metadata_connection_config=sqlite_metadata_connection_config(str(tmp_path / "metadata.db")),
        # With an image TFX packs no sources for the workers.
        beam_pipeline_args=[*portable_options, "--sdk_container_image=none"],
    )


def test_every_component_works_on_the_named_runner_and_the_nodes_open_no_examples(
    pipeline: Any,
    opened_data: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner

    LocalDagRunner().run(pipeline)
    assert opened_data() == []
    assert caplog.text.count("on Beam's PortableRunner: --runner selects it") >= len(NODES)
    written = {path.parts[len(tmp_path.parts) + 1] for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert written >= set(NODES)
    assert list((tmp_path / "root" / "Transform").rglob("transformed_examples-*.gz"))
    assert list((tmp_path / "root" / "BulkInferrer").rglob("*.parquet"))
