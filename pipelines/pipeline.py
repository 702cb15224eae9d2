"""Build the TFX pipeline of a config, the same for every runner, and resolve earlier models for comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfx import components as tfx  # not tfx.v1, which takes 8 s more to import
from tfx import types
from tfx.components.example_gen import utils
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import example_gen_pb2, pusher_pb2
from tfx.types import standard_artifacts

from infeed import components
from infeed.components import Evaluator, ExampleValidator, InputReport, SchemaGen, StatisticsGen, Trainer, Transform
from infeed.components.dataset.options import Spans, split_path
from infeed.components.example_gen.formats import default_pattern, options_of
from infeed.components.trainer.options import OVERRIDES
from infeed.components.trainer.pushed_model import PushedModel
from infeed.pipelines.config import EVAL, EXAMPLE_GENS, PipelineConfig, split_data
from infeed.pipelines.deploy import vertex
from infeed.pipelines.deploy.options import BASE_MODEL
from infeed.pipelines.deploy.vertex import VertexOptions
from infeed.pipelines.judging import eval_config, model_reports

_NAME = "latest_blessed_model"
_CANDIDATE = "candidate"


def latest_model(config: PipelineConfig) -> Resolver:
    """Return a resolver of the latest blessed model, from which the Trainer starts. It may find no model."""
    del config  # the history of the pipeline is in ML Metadata
    return Resolver(strategy_class=LatestBlessedModelStrategy, **_history()).with_id("warm_start_model")


def pushed_model(config: PipelineConfig) -> Any:
    """Return a node with the newest pushed model, from which the Trainer starts. It may have no model."""
    return PushedModel(config.serving).with_id(BASE_MODEL)


def latest_blessed(trainer: Any) -> Resolver:
    """Return a resolver of the latest blessed model, with the only strategy that Kubeflow and Vertex support."""
    del trainer  # on these platforms, a cached step is not evaluated again
    return Resolver(strategy_class=LatestBlessedModelStrategy, **_history()).with_id(_NAME)


def latest_other_blessed(trainer: Any) -> Resolver:
    """Return a resolver of the latest blessed model except the new one, for runners that resolve in ML Metadata."""
    return Resolver(
        strategy_class=LatestOtherBlessedModelStrategy, candidate=trainer.outputs["model"], **_history()
    ).with_id(_NAME)


def _history() -> dict[str, types.Channel]:
    return {
        "model": types.Channel(type=standard_artifacts.Model),
        "model_blessing": types.Channel(type=standard_artifacts.ModelBlessing),
    }


class LatestOtherBlessedModelStrategy(LatestBlessedModelStrategy):
    """Strategy that resolves the latest blessed model except the candidate.

    An unchanged run takes its model from the cache, and this model is already blessed. TFX's own strategy would resolve
    to the same model. The Evaluator would get other inputs than before, and rerun to compare the model with itself.
    """

    def resolve_artifacts(self, store: Any, input_dict: dict[str, list[Any]]) -> dict[str, list[Any]] | None:
        """Resolve with TFX's strategy among the models of `input_dict` except the candidate."""
        candidates = {artifact.id for artifact in input_dict[_CANDIDATE]}
        others = {key: list(artifacts) for key, artifacts in input_dict.items() if key != _CANDIDATE}
        others["model"] = [model for model in others["model"] if model.id not in candidates]
        resolved = super().resolve_artifacts(store, others)
        return {**resolved, _CANDIDATE: input_dict[_CANDIDATE]}  # a resolver needs an output for each input


def create_pipeline(
    config: PipelineConfig,
    *,
    baseline: Callable[[Any], Resolver] | None = latest_other_blessed,
    parameters: Mapping[str, RuntimeParameter] | None = None,
    on_vertex: VertexOptions | None = None,
    start: Callable[[PipelineConfig], Any] = latest_model,
) -> Pipeline:
    """Build a new pipeline of `config`. TFX can compile a component only once, so build one for each compilation.

    Args:
      baseline: function from the Trainer to the resolver of the model to compare with. None to compare with no model.
      parameters: runtime parameters that replace values of the config; see `runtime_parameters`.
      on_vertex: services of Vertex AI for training and pushing.
      start: function from the config to the node of the model whose weights a warm start loads.
    """
    given = parameters or {}
    example_gen = _example_gen(config, given)
    examples = example_gen.outputs["examples"]
    statistics = StatisticsGen(examples=examples)
    schema = SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    transform = Transform(
        examples=examples,
        schema=schema.outputs["schema"],
        preprocessing_fn=config.preprocessing_fn,
        materialize=False,
        disable_analyzer_cache=True,
        disable_statistics=True,
        features=config.features,
    )
    graph = transform.outputs["transform_graph"]
    starts = [start(config)] if config.warm_start else []
    job = None
    if on_vertex and on_vertex.training:
        assert config.deploy.image, "compiling for Vertex AI requires an image"
        job = vertex.custom_job(on_vertex, on_vertex.training, name=f"{config.name}-trainer", image=config.deploy.image)
    trainer = Trainer(
        examples=examples,
        transform_graph=graph,
        base_model=starts[0].outputs["model"] if starts else None,
        options=config.train,
        **{name: given[name] for name in OVERRIDES if name in given},
        custom_job=job,
    )
    blessed = [baseline(trainer)] if baseline else []
    evaluator = Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        baseline_model=blessed[0].outputs["model"] if blessed else None,
        eval_config=eval_config(config),
        example_splits=None if config.judged_on == EVAL else [config.judged_on],
        model_report=model_reports(config),
    )
    pusher = _pusher(config, trainer.outputs["model"], evaluator.outputs["blessing"], on_vertex)
    report = InputReport(
        model_run=trainer.outputs["model_run"],
        examples=examples,
        transform_graph=graph,
        max_wait_fraction=config.max_wait_fraction,
    )
    nodes = [example_gen, statistics, schema, validator, transform]
    nodes += [*starts, trainer, *blessed, evaluator, pusher, report]
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
    own = options_of(config.source, config.source_options)
    options: dict[str, Any] = {"options": config.ingest_options, **({"source": own} if own else {})}
    example_gen = getattr(components, EXAMPLE_GENS[config.source])
    if not example_gen.FORMAT:  # FileExampleGen, for formats without a component of their own
        options["format"] = config.source
    splits = [{"name": name, "hash_buckets": share} for name, share in config.splits.items()]
    shares = example_gen_pb2.Output(split_config=example_gen_pb2.SplitConfig(splits=splits) if splits else None)
    if not config.place:
        return example_gen(output_config=shares, reader=config.data, **options)
    if config.patterns:
        named = [{"name": name, "pattern": pattern} for name, pattern in config.patterns.items()]
        folder, files = config.data, example_gen_pb2.Input(splits=named)
    elif config.span_data:  # the driver sees the files of all spans; the executor reads the latest ones
        folder, spans = split_path(config.span_data)
        files = utils.make_default_input_config(Spans(spans).glob)
    else:
        folder, pattern = split_data(config.data)
        files = utils.make_default_input_config(pattern or default_pattern(config.source, config.data))
    return example_gen(given.get("data", folder), files, shares, **options)


def _pusher(config: PipelineConfig, model: Any, blessing: Any, on_vertex: VertexOptions | None) -> tfx.Pusher:
    if on_vertex and on_vertex.endpoint:
        # The imports take seconds.
        from tfx.extensions.google_cloud_ai_platform import constants
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
    destination = pusher_pb2.PushDestination(filesystem={"base_directory": config.serving})
    return tfx.Pusher(model=model, model_blessing=blessing, push_destination=destination)
