"""The examples and the model of `evaluation/conftest.py` as channels, and BulkInferrers run on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.engine.beam_runner import local_runner

Channels = dict[str, Any]


@pytest.fixture(scope="session")
def model(asked_model: str) -> str:
    """Its signatures are those of `save_model`."""
    return asked_model


@pytest.fixture
def channels(dataset: str, model: str, tmp_path: Path) -> Channels:
    """The examples and the model as channels."""
    from tfx.types import channel_utils, standard_artifacts

    examples, trained = standard_artifacts.Examples(), standard_artifacts.Model()
    examples.uri, examples.split_names = dataset, '["train", "eval"]'
    trained.uri = str(tmp_path / "trained")
    Path(trained.uri).mkdir()
    Path(trained.uri, "Format-Serving").symlink_to(model)
    return {name: channel_utils.as_channel([one]) for name, one in (("examples", examples), ("model", trained))}


@pytest.fixture
def run(channels: Channels, tmp_path: Path) -> Callable[..., tuple[Path, Any]]:
    """run(BulkInferrer, name, *Beam's options, **options) -> the folder of its output, and the artifact."""

    def run(kind: Any, name: str, *beam_options: str, **options: Any) -> tuple[Path, Any]:
        component = kind(**channels, **options)
        [(key, channel)] = component.outputs.items()
        output = channel.type()
        output.uri = str(tmp_path / name)
        inputs = {name: list(channel.get()) for name, channel in component.inputs.items()}
        with local_runner():  # for TFX's
            executor = component.executor_spec.executor_class
            context = executor.Context(beam_pipeline_args=[*beam_options], tmp_dir=str(tmp_path), unique_id="1")
            executor(context).Do(inputs, {key: [output]}, component.exec_properties)
        return tmp_path / name, output

    return run
