"""Transform a dataset, and train a model, by the config of a project."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from infeed.components.base import machine, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.reading import split_names
from infeed.components.engine.choice import ChosenMap
from infeed.components.evaluation.predictor import model_folder
from infeed.components.seams import keras as keras_seam
from infeed.components.statistics.inference import infer_schema
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY
from infeed.components.trainer.run_fn import run_fn
from infeed.components.transform import plain
from infeed.pipelines.config import EVAL, TRAIN, PipelineConfig
from infeed.pipelines.steps.folders import check_new, new_folder


def transform(config: PipelineConfig, dataset: str, output: str, rows: str | None, overwrite: bool) -> None:
    """Write the transform graph to `output`, and the transformed rows to `rows`, if given.

    Raises InfeedError if the dataset has no split train, or does not fit the features.
    """
    splits = split_names(dataset)
    if TRAIN not in splits:
        raise InfeedError(f"there is no split {TRAIN!r}", where=dataset, do="ingest the data of the project again")
    if rows:
        check_new(rows, overwrite)
    schema = infer_schema(dataset, splits, ChosenMap("reads", machine.STATISTICS_BYTES))
    function = config.preprocessing_fn and user_code.load(config.preprocessing_fn, "preprocessing_fn")
    with user_code.translate_errors(), new_folder(output, overwrite) as graph:
        if not rows:
            plain.transform(dataset, schema, config.features, function or None, graph)
            return
        with new_folder(rows, overwrite) as transformed:
            plain.transform(dataset, schema, config.features, function or None, graph, transformed)


@dataclass(frozen=True)
class TrainArgs:
    """Arguments of `run_fn`, by the names of TFX's FnArgs."""

    train_files: Sequence[str]
    eval_files: Sequence[str]
    transform_graph_path: str
    serving_model_dir: str
    model_run_dir: str
    custom_config: Mapping[str, Any]
    base_model: str | None = None
    schema_path: str | None = None
    train_steps: int | None = None
    eval_steps: int | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def local_model(place: str | None) -> Iterator[str | None]:
    """Yield a local path of a model, because TensorFlow cannot open every store. None without a model."""
    if not place or files.is_local(place):
        yield place
        return
    with tempfile.TemporaryDirectory() as scratch:
        files.copy(place, files.join(scratch, "model"))
        yield files.join(scratch, "model")


def train(
    config: PipelineConfig,
    dataset: str,
    graph: str,
    output: str,
    run: str,
    base_model: str | None = None,
    overwrite: bool = False,
) -> None:
    """Train on a dataset with a transform graph, and export the model.

    `run` is the folder of the measurements, TensorBoard logs and checkpoints. A killed training resumes from the
    checkpoints. `base_model` is a SavedModel with the initial weights; None for random weights.
    """
    # TFX passes the options with sorted keys. A model whose layers follow the order of `hparams` must match here too.
    options = json.loads(json.dumps(config.train.to_dict(), sort_keys=True))
    with user_code.translate_errors(), keras_seam.loadable_by_sessions(), new_folder(output, overwrite) as model:
        run_fn(
            TrainArgs(
                train_files=[files.join(names.split_dir(dataset, TRAIN), "*")],
                eval_files=[files.join(names.split_dir(dataset, EVAL), "*")],
                transform_graph_path=graph,
                serving_model_dir=model,
                model_run_dir=os.path.abspath(run) if files.is_local(run) else run,
                custom_config={CUSTOM_CONFIG_KEY: options},
                base_model=base_model and model_folder(base_model),
            )
        )
