"""Executor of the Trainer: passes the options to `run_fn`, and feeds a user's `run_fn` from our input pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.components.trainer.executor import GenericExecutor
from tfx.components.util import tfxio_utils
from tfx.proto import example_gen_pb2
from tfx.types.channel import OutputChannel
from tfx.utils import json_utils

from infeed.components.base import schema, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.engine import project_archive
from infeed.components.seams import keras as keras_seam
from infeed.components.seams import tfx as tfx_seam
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY, OVERRIDES, TrainOptions

SOURCE_DIGEST = "source_digest"  # digest of the user's run_fn, only for the cache key of the execution


class TrainerExecutor(GenericExecutor):
    """Executor that calls `run_fn`: the user's, or ours. Exec properties in `OVERRIDES` override the options."""

    def Do(
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> None:
        """Run the executor for TFX. It logs and passes on exactly what training uses."""
        project_archive.enter()  # for a machine of a custom job, which does not start through our entry point
        fed: list[tuple[Any, str]] = []

        def feed(fn_args: Any) -> None:
            if CUSTOM_CONFIG_KEY in (fn_args.custom_config or {}):
                return
            payload, _ = tfxio_utils.resolve_payload_format_and_data_view_uri(input_dict["examples"])
            if payload == example_gen_pb2.FORMAT_TF_EXAMPLE:
                # Not earlier: the user's module decides how TensorFlow and Keras are imported.
                from infeed.components.trainer.user_run import UserRun

                fed.append((UserRun(fn_args), fn_args.model_run_dir))

        if tfx_seam.FN_ARGS.usable():
            tfx_seam.when_fn_args_exist(self, feed)
        # Covers errors of layers and callbacks, which Keras calls.
        with user_code.translate_errors(), keras_seam.loadable_by_sessions():
            super().Do(input_dict, output_dict, with_runtime_options(exec_properties))
        for run, folder in fed:
            run.write_profile(folder)


def check_one_way(component: str, ways: Mapping[str, Any], what: str, choices: str) -> None:
    """Raise InfeedError unless exactly one of several alternative arguments of a component is given.

    `ways` are the arguments by name. Empty values count as unset. `what` is the purpose of the arguments, and
    `choices` lists them, for the error.
    """
    given = [name for name, value in ways.items() if value]
    if len(given) != 1:
        found = f"{' and '.join(given)} both define" if given else "no argument defines"
        raise InfeedError(f"{found} {what}", where=component, do=f"give exactly one of {choices}")


def config_of(options: TrainOptions, examples: types.BaseChannel | None, **functions: str) -> dict[str, Any]:
    """Return the entries of `custom_config` that hold the options.

    The key of the channel determines whether the examples are transformed. `functions` are further user functions, by
    option.
    """
    settings = options.to_dict()
    if isinstance(examples, OutputChannel) and examples.output_key == "transformed_examples":
        settings["examples_are"] = "transformed"
    # Part of the cache key of the execution, so that an edited function is trained again.
    named = {**options.user_functions, **functions}
    return {
        CUSTOM_CONFIG_KEY: settings,
        **{f"{name}_digest": user_code.digest(text, name) for name, text in named.items()},
    }


def with_runtime_options(exec_properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exec properties of TFX's Trainer with the runtime options. Raise InfeedError for an invalid option."""
    properties = dict(exec_properties)
    properties.pop(SOURCE_DIGEST, None)
    given = {name: properties.pop(name, None) for name in OVERRIDES}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return properties
    config = json_utils.loads(properties["custom_config"])
    options = schema.read(TrainOptions, config[CUSTOM_CONFIG_KEY], "TrainOptions")
    config[CUSTOM_CONFIG_KEY] = options.override(given).to_dict()
    return {**properties, "custom_config": json_utils.dumps(config)}
