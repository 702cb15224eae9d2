"""What may be set anew at each start of a compiled pipeline: where the data is, epochs, batch size and strategy."""

from __future__ import annotations

import os

from tfx.orchestration.data_types import RuntimeParameter

from infeed.components.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.sources import split_data


def runtime_parameters(config: PipelineConfig) -> dict[str, RuntimeParameter]:
    """The parameters by name, each with the config's own value as its default.

    `data` is a folder; a file of the config keeps its name in it.

    Raises:
      InfeedError: `deploy.data` names another file than `data`.
    """
    defaults = {
        "data": _data_folder(config),
        "epochs": config.train.epochs,
        "batch_size": config.train.feed.batch_size,
        "strategy": config.train.strategy,
    }
    return {name: RuntimeParameter(name, ptype=type(value), default=value) for name, value in defaults.items()}


def _data_folder(config: PipelineConfig) -> str:
    there = config.deploy.data or config.data
    _, here = split_data(config.data)
    if here is None:
        return there
    folder, file = os.path.split(there)
    if file != here:
        raise InfeedError(
            f"data is the file {here!r} here and {file!r} there",
            where="deploy.data",
            do="Give the file the same name in both places, or name a folder in both.",
        )
    return folder
