"""Compiles a config to plain components of Kubeflow Pipelines: steps that run `infeed`'s commands, without TFX.

The steps need no ML Metadata, and Kubeflow shows their artifacts. Nodes have the same names as with TFX, so that
`deploy.resources` applies to both. The steps read and write artifacts at the local paths of Kubeflow's launcher.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import pack, present
from infeed.components.kubeflow.ui import PICTURES, of_evaluation, specs_of
from infeed.components.trainer.options import OVERRIDES, TrainOptions
from infeed.pipelines.cluster.compile.checks import check_config
from infeed.pipelines.cluster.compile.compile import on_cluster
from infeed.pipelines.cluster.compile.edits import SUFFIX, VERSION, VERSIONS
from infeed.pipelines.cluster.compile.kubeflow import (
    CompileOptions,
    parameter_defaults,
    relative_function_paths,
    write_job,
)
from infeed.pipelines.cluster.job.compiled import WITHOUT_TFX
from infeed.pipelines.cluster.job.disks import DATA
from infeed.pipelines.config import EXAMPLE_GENS, Blessing, PipelineConfig, Resolved, split_data
from infeed.pipelines.deploy.options import TRAINER, cluster_runner

_TYPES = {str: "STRING", int: "NUMBER_INTEGER"}
_STATE = "input_fingerprint"  # part of the cache key; changes with name, size and time of the input's files
_STATES = {_STATE, VERSION}  # parameters that an inserted step computes for the step after it
_SHOWN = ("python", "-m", "infeed.components.kubeflow.ui")  # runs a command whose results Kubeflow shows
_AGAIN = "--overwrite"  # a retry may find the output of a killed attempt
# Placeholders of kfp.
_in = "{{{{$.inputs.artifacts['{}'].path}}}}".format
_out = "{{{{$.outputs.artifacts['{}'].path}}}}".format
_file = "{{{{$.outputs.parameters['{}'].output_file}}}}".format
_parameter = "{{{{$.inputs.parameters['{}']}}}}".format
_DATASET, _MODEL, _PAGE, _FILES = "system.Dataset", "system.Model", "system.HTML", "system.Artifact"


@dataclass(frozen=True)
class CommandStep:
    """A step of the job."""

    args: Sequence[str]  # command line of `infeed`, with the placeholders of `_in`, `_out` and `_parameter`
    outputs: Mapping[str, str]  # artifact type by output name
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # (node, output) by input name
    parameters: Sequence[str] = ()  # names of pipeline parameters, or of `_STATES` from the step before it
    shown: Mapping[str, Any] = field(default_factory=dict)  # further outputs, as ArtifactSpecs by name
    state: str = ""  # parameter that the step writes, one of `_STATES`
    command: Sequence[str] = WITHOUT_TFX  # program that takes `args`


def compile_native(config: PipelineConfig, options: CompileOptions) -> str:
    """Write the job to `options.output` and return that path.

    Raises InfeedError if `config.deploy.image` is missing, or the config has a setting that only the TFX form supports.
    """
    check_config(config, options.target, options.schema, options.folder)
    there = on_cluster(config)
    _check_needs_no_tfx(there)
    packed = _packed(there, options.folder)
    steps = _data_steps(there, packed) | _model_steps(there, packed)
    defaults = parameter_defaults(config)
    spec = {
        "pipelineInfo": {"name": there.name},
        "schemaVersion": "2.1.0",
        "sdkVersion": "infeed",
        "root": {
            "dag": {"tasks": {name: _task(name, step) for name, step in steps.items()}},
            "inputDefinitions": {
                "parameters": {
                    name: {"parameterType": _TYPES[type(value)], "defaultValue": value}
                    for name, value in defaults.items()
                }
            },
        },
        "components": {name: _component(name, step, defaults) for name, step in steps.items()},
        "deploymentSpec": {
            "executors": {
                f"{name}_executor": {
                    "container": {"image": there.deploy.image, "command": list(step.command), "args": list(step.args)}
                }
                for name, step in steps.items()
            }
        },
    }
    job = {"pipelineSpec": spec, "labels": {}, "runtimeConfig": {"parameterValues": defaults}}
    return write_job(job, there.root, there.deploy, options)


def _check_needs_no_tfx(config: PipelineConfig) -> None:
    deploy = config.deploy
    refused = {
        "deploy.beam_pipeline_args": (
            cluster_runner(deploy.beam_pipeline_args) or cluster_runner(config.beam_pipeline_args),
            "run no Beam on a cluster",
        ),
        "deploy.project": (deploy.project == "archive", "fetch no archive of the project"),
        "deploy.reading": (deploy.reading == "direct", "read datasets from the disk of their pod"),
        "deploy.training": (deploy.training, "start no training job"),
    }
    for where, (is_set, what) in refused.items():
        if is_set:
            do = "remove the setting, or compile with --target kubeflow"
            raise InfeedError(f"steps without TFX {what}", where=where, do=do)


def _data_steps(config: PipelineConfig, packed: Mapping[str, str]) -> dict[str, CommandStep]:
    """Return the steps from the data to the transform graph, by node."""
    example_gen = EXAMPLE_GENS[config.source]
    dataset = (example_gen, "dataset")
    _, file = (None, None) if config.span_data else split_data(config.data)
    data = ("--data", DATA + (f"/{file}" if file else "")) if config.place else ()
    parameter = ("data",) if config.place else ()
    pictures = specs_of([PICTURES] if config.source == "images" else [], ())
    return {
        f"{example_gen}{SUFFIX}": CommandStep(
            ("--project", packed["ingest"], *data, f"--{_STATE}", _file(_STATE)),
            {},
            parameters=parameter,
            state=_STATE,
            command=("python", "-m", "infeed.pipelines.steps.input_state"),
        ),
        example_gen: CommandStep(
            (
                *(("{{$}}", "examples", _out("dataset")) if pictures else ()),
                *("ingest", packed["ingest"], _out("dataset"), *data, _AGAIN),
            ),
            {"dataset": _DATASET},
            parameters=(*parameter, _STATE),
            shown=pictures,
            command=_SHOWN if pictures else WITHOUT_TFX,
        ),
        "StatisticsGen": CommandStep(
            ("statistics", _in("dataset"), "--html", _out("page")), {"page": _PAGE}, {"dataset": dataset}
        ),
        "Transform": CommandStep(
            ("transform", packed["transform"], "--dataset", _in("dataset"), "--output", _out("graph"), _AGAIN),
            {"graph": _FILES},
            {"dataset": dataset},
        ),
    }


def _model_steps(config: PipelineConfig, packed: Mapping[str, str]) -> dict[str, CommandStep]:
    """Return the steps from the transform graph to the pushed model, by node."""
    dataset, model = (EXAMPLE_GENS[config.source], "dataset"), ("Trainer", "model")
    flags = [word for name in OVERRIDES for word in (f"--{name.replace('_', '-')}", _parameter(name))]
    classes = config.matrix_classes
    start = CommandStep(
        ("--serving", config.serving, f"--{VERSION}", _file(VERSION)),
        {},
        state=VERSION,
        command=("python", "-m", VERSIONS),
    )
    return {
        **({f"{TRAINER}{SUFFIX}": start} if config.warm_start else {}),
        "Trainer": CommandStep(
            (
                *("train", packed["train"], "--dataset", _in("dataset"), "--graph", _in("graph")),
                *("--output", _out("model"), "--run", _out("run")),
                *("--checkpoints", config.train.checkpoint_dir or ""),
                *(("--warm-start", _parameter(VERSION)) if config.warm_start else ()),
                *(*flags, _AGAIN),
            ),
            {"model": _MODEL, "run": _FILES},
            {"dataset": dataset, "graph": ("Transform", "graph")},
            (*OVERRIDES, *([VERSION] if config.warm_start else [])),
        ),
        "Evaluator": CommandStep(
            (
                *("{{$}}", "evaluation", _out("evaluation")),
                *("evaluate", packed["evaluate"], "--dataset", _in("dataset"), "--model", _in("model")),
                *("--output", _out("evaluation"), "--allow-unblessed", _AGAIN),
            ),
            {"evaluation": _FILES},
            {"dataset": dataset, "model": model},
            shown=specs_of(of_evaluation(classes), classes),
            command=_SHOWN,
        ),
        "Pusher": CommandStep(
            ("push", _in("model"), config.serving, "--evaluation", _in("evaluation"), "--allow-unblessed"),
            {},
            {"model": model, "evaluation": ("Evaluator", "evaluation")},
        ),
        "InputReport": CommandStep(
            ("report", _in("run"), "--dataset", _in("dataset"), "--html", _out("page")),
            {"page": _PAGE},
            {"dataset": dataset, "run": ("Trainer", "run")},
        ),
    }


def _packed(config: PipelineConfig, project: str | None) -> dict[str, str]:
    """Return the packed config of each command. It holds only needed settings, so that other changes hit the cache."""
    whole = Resolved.of(config)
    options = TrainOptions(
        config.train.model_fn, config.train.label, config.train.task, threshold=config.train.threshold
    )
    # Steps that need neither the blessing nor all options of training get constants in their place.
    data = dataclasses.replace(whole, train=options, blessing=Blessing("accuracy", 0.0))
    of_training = config.train.user_functions
    code = {option: user_code.digest(text, option) for option, text in config.user_functions.items()}
    own_features = [option for option in code if option.startswith("features: ")]
    parts = {
        "ingest": dataclasses.replace(
            data, features=(), preprocessing_fn=None, ingest=config.ingest_options, code=_only(code, "filter", "reader")
        ),
        "transform": dataclasses.replace(data, code=_only(code, "preprocessing_fn", *own_features)),
        "train": dataclasses.replace(whole, blessing=data.blessing, code=_only(code, *of_training)),
        "evaluate": dataclasses.replace(whole, train=options),
    }
    texts = {name: part.to_json() for name, part in parts.items()}
    return {name: pack(relative_function_paths(text, project) if project else text) for name, text in texts.items()}


def _only(code: Mapping[str, str], *options: str) -> dict[str, str]:
    return {option: digest for option, digest in code.items() if option in options}


def _task(name: str, step: CommandStep) -> dict[str, Any]:
    artifacts = {
        key: {"taskOutputArtifact": {"producerTask": producer, "outputArtifactKey": output}}
        for key, (producer, output) in step.inputs.items()
    }
    producers = {producer for producer, _ in step.inputs.values()}
    parameters: dict[str, Any] = {key: {"componentInputParameter": key} for key in step.parameters}
    for key in _STATES & parameters.keys():
        inspects = {"producerTask": f"{name}{SUFFIX}", "outputParameterKey": key}
        parameters[key] = {"taskOutputParameter": inspects}
        producers.add(inspects["producerTask"])
    inputs = {"parameters": parameters, "artifacts": artifacts}
    # Steps without an output artifact inspect the input or push a model, so they must run each time.
    cached = {"enableCache": True} if step.outputs else {}
    return {
        "taskInfo": {"name": name},
        "componentRef": {"name": name},
        "cachingOptions": cached,
        "inputs": present(inputs),
        **({"dependentTasks": sorted(producers)} if producers else {}),
    }


def _component(name: str, step: CommandStep, defaults: Mapping[str, Any]) -> dict[str, Any]:
    inputs = {
        "parameters": {key: {"parameterType": _TYPES[type(defaults.get(key, ""))]} for key in step.parameters},
        "artifacts": {key: _spec({"dataset": _DATASET, "model": _MODEL}.get(key, _FILES)) for key in step.inputs},
    }
    outputs = {
        "artifacts": {**{key: _spec(title) for key, title in step.outputs.items()}, **step.shown},
        "parameters": {step.state: {"parameterType": "STRING"}} if step.state else {},
    }
    component: dict[str, Any] = {"executorLabel": f"{name}_executor"}
    if found := present(inputs):
        component["inputDefinitions"] = found
    if found := present(outputs):
        component["outputDefinitions"] = found
    return component


def _spec(title: str) -> dict[str, Any]:
    return {"artifactType": {"schemaTitle": title, "schemaVersion": "0.0.1"}}
