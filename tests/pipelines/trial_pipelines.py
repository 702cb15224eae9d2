"""Small real pipelines for the tests of what runs them."""

# No `from __future__ import annotations`: TFX reads the annotations of a @component function.
# ruff: noqa: N802 - these functions become components, which are named like classes

from pathlib import Path
from typing import Any

from tfx.components import CsvExampleGen, SchemaGen, StatisticsGen
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.types.channel import Channel
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, Schema

from infeed.components.errors import InfeedError


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
