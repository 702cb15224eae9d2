"""Reads a model run's input profile, judges it, and writes the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest, Split
from infeed.components.input_report.options import ReportOptions
from infeed.components.input_report.profile import INPUT_PROFILE, InputProfile, read_profile
from infeed.components.input_report.report import Report
from infeed.components.input_report.verdict import judge

MODEL_RUN, EXAMPLES, TRANSFORM_GRAPH, REPORT = "model_run", "examples", "transform_graph", "report"


class Executor(base_executor.BaseExecutor):
    """Writes `report.html` and `report.json` into the output artifact.

    The artifact's custom properties tell the outcome: `verdict`, `wait_fraction` (the share that the verdict goes by)
    and, where a limit was set, `blessed` (1 or 0).
    """

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        options = ReportOptions(max_wait_fraction=exec_properties.get("max_wait_fraction"))
        self._log_startup(input_dict, output_dict, exec_properties)
        profile = read_profile(files.join(artifact_utils.get_single_uri(input_dict[MODEL_RUN]), INPUT_PROFILE))
        split = split_trained_on(profile, (artifact.uri for artifact in input_dict.get(EXAMPLES, ())))
        verdict = judge(profile, max_wait_fraction=options.max_wait_fraction, split=split)
        inputs = {key: artifact.uri for key, artifacts in input_dict.items() for artifact in artifacts}
        report = Report(profile, verdict, options.max_wait_fraction, split, inputs)
        artifact = artifact_utils.get_single_instance(output_dict[REPORT])
        report.write(artifact.uri)
        _record(artifact, report.custom_properties())


def split_trained_on(profile: InputProfile, uris: Iterable[str]) -> Split | None:
    """The split whose size is what the Trainer read, out of the manifests under `uris`; None where no manifest has it.

    Training may have read other examples than these, such as a transformed copy of them: then they tell nothing.
    """
    manifests = (Manifest.read(uri) for uri in uris if files.exists(files.join(uri, names.MANIFEST)))
    splits = (split for manifest in manifests for split in manifest.splits.values())
    return next((split for split in splits if split.bytes == profile.bytes), None)


def _record(artifact: types.Artifact, properties: dict[str, str | float | int]) -> None:
    for name, value in properties.items():
        if isinstance(value, str):
            artifact.set_string_custom_property(name, value)
        elif isinstance(value, int):
            artifact.set_int_custom_property(name, value)
        else:
            artifact.set_float_custom_property(name, value)
