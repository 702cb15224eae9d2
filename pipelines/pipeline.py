"""Where the components meet: one pipeline, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfx import components as tfx  # not tfx.v1, which takes 8 s more to import
from tfx.components.example_gen import utils
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import pusher_pb2

# isort: split
import tensorflow_model_analysis as tfma  # only after tfx: the other order fails on TFX 1.21

from infeed import components
from infeed.components import CsvOptions, InputReport, Trainer, Transform
from infeed.components.example_gen.sources.images import default_pattern
from infeed.pipelines.baseline import latest_other_blessed
from infeed.pipelines.config import Blessing, PipelineConfig
from infeed.pipelines.deploy import vertex
from infeed.pipelines.deploy.vertex_options import VertexOptions
from infeed.pipelines.sources import EXAMPLE_GENS, split_data

_SERVING = "serving_default"
_TRANSFORM = "transform_features"

# What is measured, by TFMA's class and by the name people read; the metric that decides comes first.
METRICS = {
    # No cross-entropy: it has no value for an evaluation record of a class that no training record has.
    "accuracy": {"SparseCategoricalAccuracy": "accuracy"},
    "mse": {"MeanSquaredError": "mean squared error", "MeanAbsoluteError": "mean absolute error"},
}


def create_pipeline(
    config: PipelineConfig,
    *,
    baseline: Callable[[Any], Resolver] | None = latest_other_blessed,
    parameters: Mapping[str, RuntimeParameter] | None = None,
    on_vertex: VertexOptions | None = None,
) -> Pipeline:
    """The pipeline of `config`, made anew at each call: compiled components cannot be compiled again.

    Args:
      config: what it is made of.
      baseline: makes, from the Trainer, the node that finds the model to compare with; see `baseline`. None: no model.
      parameters: take the place of the config's own values; see `runtime_parameters`.
      on_vertex: the services of Vertex AI that training and pushing are left to.
    """
    given = parameters or {}
    example_gen = _example_gen(config, given)
    examples = example_gen.outputs["examples"]
    statistics = tfx.StatisticsGen(examples=examples)
    schema = tfx.SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    validator = tfx.ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    transform = Transform(examples=examples, schema=schema.outputs["schema"], features=config.features)
    graph = transform.outputs["transform_graph"]
    trainer = _trainer(config, examples, graph, given, on_vertex)
    blessed = [baseline(trainer)] if baseline else []
    evaluator = tfx.Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        baseline_model=blessed[0].outputs["model"] if blessed else None,
        eval_config=_eval_config(config),
    )
    pusher = _pusher(config, trainer.outputs["model"], evaluator.outputs["blessing"], on_vertex)
    report = InputReport(
        model_run=trainer.outputs["model_run"],
        examples=examples,
        transform_graph=graph,
        max_wait_fraction=config.max_wait_fraction,
    )
    nodes = [example_gen, statistics, schema, validator, transform, trainer, *blessed, evaluator, pusher, report]
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=config.artifacts,
        components=nodes,
        enable_cache=config.enable_cache,
        # On a cluster the platform keeps the metadata.
        metadata_connection_config=None if "://" in config.root else sqlite_metadata_connection_config(config.metadata),
        beam_pipeline_args=list(config.beam_pipeline_args),
    )


def _example_gen(config: PipelineConfig, given: Mapping[str, RuntimeParameter]) -> Any:
    folder, pattern = split_data(config.data)
    if config.source == "images" and not pattern:
        pattern = default_pattern(config.data)
    files = utils.make_default_input_config(pattern) if pattern else None
    own = {"csv": CsvOptions(delimiter=config.delimiter)} if config.source == "csv" else {}
    return getattr(components, EXAMPLE_GENS[config.source])(given.get("data", folder), files, **own)


def _trainer(
    config: PipelineConfig,
    examples: Any,
    graph: Any,
    given: Mapping[str, RuntimeParameter],
    on_vertex: VertexOptions | None,
) -> Trainer:
    job = None
    if on_vertex and on_vertex.training:
        assert config.deploy.image, "what compiles for Vertex AI has asked for an image"
        job = vertex.custom_job(on_vertex, on_vertex.training, name=f"{config.name}-trainer", image=config.deploy.image)
    return Trainer(
        examples=examples,
        transform_graph=graph,
        options=config.train,
        epochs=given.get("epochs"),
        batch_size=given.get("batch_size"),
        strategy=given.get("strategy"),
        custom_job=job,
    )


def _pusher(config: PipelineConfig, model: Any, blessing: Any, on_vertex: VertexOptions | None) -> tfx.Pusher:
    if on_vertex and on_vertex.endpoint:
        from tfx.extensions.google_cloud_ai_platform import constants  # takes seconds, and only this needs it
        from tfx.extensions.google_cloud_ai_platform.pusher.component import Pusher

        return Pusher(
            model=model,
            model_blessing=blessing,
            custom_config={
                constants.ENABLE_VERTEX_KEY: True,
                constants.VERTEX_REGION_KEY: on_vertex.region,
                constants.VERTEX_CONTAINER_IMAGE_URI_KEY: on_vertex.endpoint.image,
                constants.SERVING_ARGS_KEY: vertex.serving_args(on_vertex, on_vertex.endpoint),
            },
        )
    filesystem = pusher_pb2.PushDestination.Filesystem(base_directory=config.serving)
    destination = pusher_pb2.PushDestination(filesystem=filesystem)
    return tfx.Pusher(model=model, model_blessing=blessing, push_destination=destination)


def _eval_config(config: PipelineConfig) -> tfma.EvalConfig:
    classification = config.train.task == "classification"
    spec = tfma.ModelSpec(
        signature_name=_SERVING,
        preprocessing_function_names=[_TRANSFORM],
        label_key=config.train.label,
        prediction_key="probabilities" if classification else "prediction",
    )
    return tfma.EvalConfig(
        model_specs=[spec],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=[tfma.MetricsSpec(metrics=_metrics(config.blessing))],
    )


def _metrics(blessing: Blessing) -> list[tfma.MetricConfig]:
    """The first metric decides about the blessing, the others are for people."""
    decisive, *others = METRICS[blessing.metric]
    return [
        tfma.MetricConfig(class_name=decisive, threshold=_threshold(blessing)),
        *(tfma.MetricConfig(class_name=name) for name in (*others, "ExampleCount")),
    ]


def _threshold(blessing: Blessing) -> tfma.MetricThreshold:
    bound, slack = {"value": blessing.bound}, {"value": blessing.slack}
    if blessing.metric == "accuracy":
        return tfma.MetricThreshold(
            value_threshold=tfma.GenericValueThreshold(lower_bound=bound),
            change_threshold=tfma.GenericChangeThreshold(
                direction=tfma.MetricDirection.HIGHER_IS_BETTER, absolute={"value": -blessing.slack}
            ),
        )
    return tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(upper_bound=bound),
        change_threshold=tfma.GenericChangeThreshold(direction=tfma.MetricDirection.LOWER_IS_BETTER, relative=slack),
    )
