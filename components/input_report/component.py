"""InputReport: did training wait for its input, and what to change."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter
from tfx.types.experimental import simple_artifacts

from infeed.components.input_report import executor
from infeed.components.input_report.options import ReportOptions


class InputReportSpec(ComponentSpec):
    """What goes in and out of InputReport."""

    PARAMETERS = {"max_wait_fraction": ExecutionParameter(type=float, optional=True)}
    INPUTS = {
        executor.MODEL_RUN: ChannelParameter(type=standard_artifacts.ModelRun),
        executor.EXAMPLES: ChannelParameter(type=standard_artifacts.Examples, optional=True),
        executor.TRANSFORM_GRAPH: ChannelParameter(type=standard_artifacts.TransformGraph, optional=True),
    }
    # One of TFX's own types: for Kubeflow and Vertex a type of our own must be called `<word>.<Name>`, and in the
    # container TFX imports just that, before the executor; a class in a package would compile and then not be found.
    OUTPUTS = {executor.REPORT: ChannelParameter(type=simple_artifacts.Metrics)}


class InputReport(base_component.BaseComponent):
    """Judges how well training was fed, from what the Trainer measured while it trained.

    Output `report`: an artifact with `report.html`, for people, and `report.json`, for programs. Its custom properties
    are `verdict` ("input-bound", "balanced" or "compute-bound"), `wait_fraction` (0 to 1, after the first epoch where
    there are more) and, with a limit, `blessed` (1 or 0).

    Args:
      model_run: the `model_run` of infeed's Trainer, which holds `input_profile.json`.
      examples: what the Trainer read. Where it has a manifest, the number of its shards is judged too.
      transform_graph: what the Trainer applied; the report says which.
      max_wait_fraction: largest share of training time, 0 to 1, that training may wait for input and still be blessed.

    Raises:
      InfeedError: the limit is not between 0 and 1.
    """

    SPEC_CLASS = InputReportSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        model_run: types.BaseChannel,
        examples: types.BaseChannel | None = None,
        transform_graph: types.BaseChannel | None = None,
        max_wait_fraction: float | None = None,
    ) -> None:
        options = ReportOptions(None if max_wait_fraction is None else float(max_wait_fraction))
        spec = InputReportSpec(
            model_run=model_run,
            examples=examples,
            transform_graph=transform_graph,
            max_wait_fraction=options.max_wait_fraction,
            report=types.Channel(type=simple_artifacts.Metrics),
        )
        super().__init__(spec=spec)
