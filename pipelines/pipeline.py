"""Where the components meet: one pipeline, whatever runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tfx import components as tfx  # not tfx.v1, which takes 8 s more to import
from tfx.components.example_gen import utils
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import pusher_pb2

# isort: split
import tensorflow_model_analysis as tfma  # only after tfx: the other order fails on TFX 1.21

from infeed.components import CsvExampleGen, CsvOptions, ImageExampleGen, InputReport, Trainer, Transform
from infeed.pipelines.baseline import latest_other_blessed
from infeed.pipelines.config import Blessing, PipelineConfig

_SERVING = "serving_default"
_TRANSFORM = "transform_features"

# What is measured, by TFMA's class and by the name people read; the metric that decides comes first.
METRICS = {
    # No cross-entropy: it has no value for an evaluation record of a class that no training record has.
    "accuracy": {"SparseCategoricalAccuracy": "accuracy"},
    "mse": {"MeanSquaredError": "mean squared error", "MeanAbsoluteError": "mean absolute error"},
}


def create_pipeline(config: PipelineConfig, *, baseline: Callable[[Any], Resolver] = latest_other_blessed) -> Pipeline:
    """The pipeline of `config`, made anew at each call: compiled components cannot be compiled again.

    Args:
      config: what it is made of.
      baseline: makes, from the Trainer, the node that finds the model to compare with; see `baseline`.
    """
    example_gen = _example_gen(config)
    examples = example_gen.outputs["examples"]
    statistics = tfx.StatisticsGen(examples=examples)
    schema = tfx.SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    validator = tfx.ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    transform = Transform(examples=examples, schema=schema.outputs["schema"], features=config.features)
    graph = transform.outputs["transform_graph"]
    trainer = Trainer(examples=examples, transform_graph=graph, options=config.train)
    blessed = baseline(trainer)
    evaluator = tfx.Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        baseline_model=blessed.outputs["model"],
        eval_config=_eval_config(config),
    )
    pusher = tfx.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=config.serving)
        ),
    )
    report = InputReport(
        model_run=trainer.outputs["model_run"],
        examples=examples,
        transform_graph=graph,
        max_wait_fraction=config.max_wait_fraction,
    )
    nodes = [example_gen, statistics, schema, validator, transform, trainer, blessed, evaluator, pusher, report]
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=config.artifacts,
        components=nodes,
        enable_cache=config.enable_cache,
        metadata_connection_config=sqlite_metadata_connection_config(config.metadata),
        beam_pipeline_args=list(config.beam_pipeline_args),
    )


def _example_gen(config: PipelineConfig) -> Any:
    folder, pattern = config.data, None
    if os.path.isfile(config.data):
        folder, file = os.path.split(config.data)  # TFX takes a folder and a pattern in it
        pattern = utils.make_default_input_config(file)
    if config.source == "images":
        return ImageExampleGen(folder, pattern)
    return CsvExampleGen(folder, pattern, csv=CsvOptions(delimiter=config.delimiter))


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
