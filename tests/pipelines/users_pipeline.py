"""A pipeline file as a user of TFX writes it: stock components, a module file, an importer and a resolver."""

# No `from __future__ import annotations`: TFX reads the annotations of a @component function.
# ruff: noqa: N802 - this function becomes a component, which is named like a class

import os

from tfx import v1 as tfx
from tfx.components import CsvExampleGen, ExampleValidator, SchemaGen, StatisticsGen, Transform
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, OutputDict, Parameter
from tfx.dsl.component.experimental.container_component import create_container_component
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.component.experimental.placeholders import InputUriPlaceholder
from tfx.orchestration.data_types import RuntimeParameter
from tfx.types.standard_artifacts import Model, ModelBlessing, Schema, TransformGraph

ROOT = os.environ.get("USERS_ROOT", "s3://bucket/users")
MODULE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "users_module.py")
LONG = "x" * 10_000


@component
def Export(
    graph: InputArtifact[TransformGraph],
    model: OutputArtifact[Model],
    base: InputArtifact[Model] = None,
    words: Parameter[str] = "",
) -> None:
    """Write a file as a model: enough for a test of the messages between steps."""
    with open(os.path.join(model.uri, "model.txt"), "w") as file:
        file.write(f"{os.path.isdir(graph.uri)} {base} {len(words)}")
    model.set_float_custom_property("half", 0.0)
    model.set_string_custom_property("said", words[:3])


@component
def Count(word: Parameter[str]) -> OutputDict(rows=int, share=float):
    """Return values, which TFX writes to files."""
    return {"rows": len(word), "share": 0.0}


@component
def Report(rows: int, share: float, most: Parameter[int], model: OutputArtifact[Model]) -> None:
    """Write values of another step: two from files, and one from a parameter of the backend."""
    with open(os.path.join(model.uri, "model.txt"), "w") as file:
        file.write(f"{rows} {share} {most}")


Notify = create_container_component(
    "Notify",
    image="registry.example/third:2",
    inputs={"model": Model},
    command=["echo", LONG, InputUriPlaceholder("model")],
)


def create_pipeline() -> tfx.dsl.Pipeline:
    """Return a pipeline without a root, which the compiler's caller gives."""
    examples = CsvExampleGen(input_base=RuntimeParameter("data", ptype=str, default=f"{ROOT}/data"))
    statistics = StatisticsGen(examples=examples.outputs["examples"])
    schema = SchemaGen(statistics=statistics.outputs["statistics"])
    imported = tfx.dsl.Importer(source_uri=f"{ROOT}/schema", artifact_type=Schema).with_id("Imported")
    checked = ExampleValidator(statistics=statistics.outputs["statistics"], schema=imported.outputs["result"])
    transform = Transform(examples=examples.outputs["examples"], schema=schema.outputs["schema"], module_file=MODULE)
    latest = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=Model),
        model_blessing=tfx.dsl.Channel(type=ModelBlessing),
    ).with_id("latest")
    export = Export(graph=transform.outputs["transform_graph"], base=latest.outputs["model"], words=LONG)
    nodes = [examples, statistics, schema, imported, checked, transform, latest, export]
    return tfx.dsl.Pipeline("users-pipeline", components=nodes)


def with_container() -> tfx.dsl.Pipeline:
    """Return a pipeline with a container of another image."""
    model = tfx.dsl.Importer(source_uri=f"{ROOT}/model", artifact_type=Model).with_id("Imported")
    return tfx.dsl.Pipeline("third", components=[model, Notify(model=model.outputs["result"])])


def with_values() -> tfx.dsl.Pipeline:
    """Return a pipeline whose steps hand on values."""
    count = Count(word="abc")
    most = count.outputs["rows"].future()[0].value
    report = Report(rows=count.outputs["rows"], share=count.outputs["share"], most=most)
    return tfx.dsl.Pipeline("values", components=[count, report])


def that_requires() -> tfx.dsl.Pipeline:
    """Return a pipeline whose Transform requires what a resolver finds."""
    examples = CsvExampleGen(input_base=f"{ROOT}/data")
    latest = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestArtifactStrategy, schema=tfx.dsl.Channel(type=Schema)
    ).with_id("latest")
    transform = Transform(examples=examples.outputs["examples"], schema=latest.outputs["schema"], module_file=MODULE)
    return tfx.dsl.Pipeline("requires", components=[examples, latest, transform])


def of_this_machine() -> tfx.dsl.Pipeline:
    """Return a pipeline that imports a folder of this machine."""
    model = tfx.dsl.Importer(source_uri="/models/1", artifact_type=Model).with_id("Imported")
    return tfx.dsl.Pipeline("local", components=[model])


def of_minio() -> tfx.dsl.Pipeline:
    """Return a pipeline whose data is in a store that Beam does not know."""
    return tfx.dsl.Pipeline("minio", components=[CsvExampleGen(input_base="minio://bucket/data")])


def misnamed() -> tfx.dsl.Pipeline:
    """Return a pipeline whose name no cluster takes."""
    return tfx.dsl.Pipeline("My_pipeline", components=[])


def not_a_pipeline() -> int:
    """Return something else."""
    return 3


def with_arguments(root: str) -> tfx.dsl.Pipeline:
    """Return a pipeline below a root, which nobody gives."""
    return tfx.dsl.Pipeline("arguments", root, components=[])
