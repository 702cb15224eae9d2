"""TFX's executor of the Trainer, with the options that a run may set anew put over those of the pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfx.components.trainer.executor import GenericExecutor
from tfx.utils import json_utils

from infeed.components.trainer.options import CUSTOM_CONFIG_KEY, TrainOptions

RUNTIME_OPTIONS = ("epochs", "batch_size", "strategy")


class Executor(GenericExecutor):
    """Runs `run_fn`; the exec properties `epochs`, `batch_size` and `strategy` win over the options of that name."""

    def Do(
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> None:
        """As TFX calls it; everything that it logs and passes on is what training really gets."""
        super().Do(input_dict, output_dict, with_runtime_options(exec_properties))


def with_runtime_options(exec_properties: Mapping[str, Any]) -> dict[str, Any]:
    """The exec properties of TFX's own Trainer, the runtime options inside of them.

    Raises:
      InfeedError: an option is out of range.
    """
    properties = dict(exec_properties)
    given = {name: properties.pop(name, None) for name in RUNTIME_OPTIONS}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return properties
    config = json_utils.loads(properties["custom_config"])
    options = TrainOptions.from_dict(config[CUSTOM_CONFIG_KEY])
    feed = dataclasses.replace(options.feed, batch_size=given.pop("batch_size", options.feed.batch_size))
    config[CUSTOM_CONFIG_KEY] = dataclasses.replace(options, feed=feed, **given).to_dict()
    return {**properties, "custom_config": json_utils.dumps(config)}
