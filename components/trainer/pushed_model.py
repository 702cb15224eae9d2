"""Node for platforms without resolvers that returns the newest pushed model, for a warm start.

The Pusher pushes only blessed models, so this is the latest blessed model. Kubeflow's backend rejects resolvers.
"""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, channel_utils, standard_artifacts
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter
from tfx.utils import path_utils

from infeed.components.dataset import files
from infeed.components.trainer.versions import newest_version


class PushedModelExecutor(base_executor.BaseExecutor):
    """Executor that copies the newest version below `serving` into the output, or nothing if there is no version."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        if newest := newest_version(exec_properties["serving"]):
            uri = artifact_utils.get_single_uri(output_dict["model"])
            files.copy(newest, path_utils.serving_model_dir(uri))


class PushedModelSpec(ComponentSpec):
    PARAMETERS = {"serving": ExecutionParameter(type=str)}
    INPUTS: dict[str, ChannelParameter] = {}
    OUTPUTS = {"model": ChannelParameter(type=standard_artifacts.Model)}


class PushedModel(base_component.BaseComponent):
    """Provides the newest pushed model to a Trainer as `base_model`.

    The artifact is empty if nothing has been pushed.
    `serving` is the folder to which models are pushed, or one of its versions.
    """

    SPEC_CLASS = PushedModelSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(PushedModelExecutor)

    def __init__(self, serving: str) -> None:
        model = channel_utils.as_channel([standard_artifacts.Model()])
        super().__init__(PushedModelSpec(serving=serving, model=model))
