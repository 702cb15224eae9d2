"""Small real pipelines for the tests of what runs them."""

# No `from __future__ import annotations`: TFX reads the annotations of a @component function.
# ruff: noqa: N802 - these functions become components, which are named like classes

from pathlib import Path
from typing import Any

import tensorflow_model_analysis as tfma  # only after tfx: the other order fails on TFX 1.21
import tfx.components
from tfx.components import CsvExampleGen, SchemaGen, StatisticsGen
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.importer import Importer
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.types.channel import Channel
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, Schema

import infeed.components
from infeed.components.base.errors import InfeedError


def csv_pipeline(root: Path) -> Pipeline:
    """50 rows of two columns -> statistics -> schema, by TFX's components."""
    data = root / "csv"
    if not data.exists():
        data.mkdir(parents=True)
        (data / "rows.csv").write_text("a,b\n" + "".join(f"{i},{i / 2}\n" for i in range(50)))
    examples = CsvExampleGen(input_base=str(data))
    statistics = StatisticsGen(examples=examples.outputs["examples"])
    schema = SchemaGen(statistics=statistics.outputs["statistics"])
    return pipeline(root, [examples, statistics, schema])


DATA_NODES = ("CsvExampleGen", "StatisticsGen", "Transform", "Evaluator", "BulkInferrer")


def data_pipeline(root: Path) -> Pipeline:
    """Every node of `DATA_NODES`, of this package and of TFX (`TfxTransform`), and three that pass over no data."""
    model = Importer(source_uri=str(root / "model"), artifact_type=Model).with_id("Model")
    nodes: list[Any] = [model]
    for library, prefix in ((infeed.components, ""), (tfx.components, "Tfx")):
        examples = library.CsvExampleGen(input_base=str(root)).with_id(f"{prefix}CsvExampleGen")
        given = {"examples": examples.outputs["examples"]}
        statistics = library.StatisticsGen(**given).with_id(f"{prefix}StatisticsGen")
        schema = SchemaGen(statistics=statistics.outputs["statistics"]).with_id(f"{prefix}SchemaGen")
        nodes += [examples, statistics, schema]
        made = {
            "Transform": library.Transform(
                **given, schema=schema.outputs["schema"], preprocessing_fn="os.path.join", materialize=False
            ),
            "Evaluator": library.Evaluator(**given, model=model.outputs["result"], eval_config=tfma.EvalConfig()),
            "BulkInferrer": library.BulkInferrer(**given, model=model.outputs["result"]),
        }
        nodes += [node.with_id(f"{prefix}{name}") for name, node in made.items()]
    return pipeline(root, nodes)


def mark(root: str, name: str) -> None:
    with Path(root, name).open("a") as marks:
        marks.write("x")


@component
def Ingest(examples: OutputArtifact[Examples], trace: Parameter[str]):
    mark(trace, "Ingest")


@component
def Describe(examples: InputArtifact[Examples], schema: OutputArtifact[Schema], trace: Parameter[str]):
    mark(trace, "Describe")


@component
def Learn(examples: InputArtifact[Examples], model: OutputArtifact[Model], trace: Parameter[str]):
    mark(trace, "Learn")
    if Path(trace, "fault").exists():
        raise InfeedError("the loss is not a number", where="epoch 3", do="lower the rate")


@component
def Inspect(schema: InputArtifact[Schema], model: InputArtifact[Model], trace: Parameter[str]):
    mark(trace, "Inspect")


@component
def Parse(trace: Parameter[str]):
    import apache_beam as beam

    def parse(_: int) -> None:
        raise InfeedError("'a.png' is not an image", where="class cat", do="remove it")

    with beam.Pipeline() as beam_pipeline:
        beam_pipeline | beam.Create([1]) | "Decode" >> beam.Map(parse) | beam.GroupBy(lambda _: 0)


def learning_pipeline(root: Path) -> Pipeline:
    """Ingest -> Learn, Ingest -> Describe, both -> Inspect.

    Each execution leaves a mark in `root`, in a file named like its node; the file `root/fault` makes Learn fail.
    """
    trace = str(root)
    ingest = Ingest(trace=trace)
    learn = Learn(examples=ingest.outputs["examples"], trace=trace)
    describe = Describe(examples=ingest.outputs["examples"], trace=trace)
    inspect = Inspect(schema=describe.outputs["schema"], model=learn.outputs["model"], trace=trace)
    return pipeline(root, [ingest, learn, describe, inspect])


@component
def Compare(model: InputArtifact[Model]):
    raise AssertionError("there is no model to compare with")


def resolving_pipeline(root: Path) -> Pipeline:
    """A resolver that finds nothing, and a node that cannot do without."""
    blessed = Resolver(
        strategy_class=LatestBlessedModelStrategy,
        model=Channel(type=Model),
        model_blessing=Channel(type=ModelBlessing),
    ).with_id("latest_blessed_model")
    return pipeline(root, [blessed, Compare(model=blessed.outputs["model"])])


def beam_pipeline(root: Path) -> Pipeline:
    return pipeline(root, [Parse(trace=str(root))])


def pipeline(root: Path, components: list[Any]) -> Pipeline:
    """Component objects can be compiled once only, so each run and each test makes its own."""
    return Pipeline(
        pipeline_name="trial",
        pipeline_root=str(root / "artifacts"),
        components=components,
        enable_cache=True,
        metadata_connection_config=sqlite_metadata_connection_config(str(root / "metadata" / "metadata.db")),
        beam_pipeline_args=[],
    )
