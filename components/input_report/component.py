"""The InputReport component and its executor: report whether training waited for input, and recommended changes.

`InteractiveContext.show` displays the report in a notebook, as TFX displays statistics and schemas.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, standard_artifacts
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter
from tfx.types.experimental import simple_artifacts

from infeed.components.base.drawing import notebook_frame
from infeed.components.input_report.report import Report
from infeed.components.input_report.verdict import ReportOptions

MODEL_RUN, EXAMPLES, TRANSFORM_GRAPH, REPORT = "model_run", "examples", "transform_graph", "report"


class InputReportExecutor(base_executor.BaseExecutor):
    """Executor that writes `report.html`, `report.json` and custom properties into the output artifact."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        options = ReportOptions(max_wait_fraction=exec_properties.get("max_wait_fraction"))
        inputs = {key: artifact.uri for key, artifacts in input_dict.items() for artifact in artifacts}
        examples = [artifact.uri for artifact in input_dict.get(EXAMPLES, ())]
        report = Report.of(inputs[MODEL_RUN], examples, options.max_wait_fraction, inputs)
        artifact = artifact_utils.get_single_instance(output_dict[REPORT])
        report.write(artifact.uri)
        for name, value in report.custom_properties().items():
            if isinstance(value, str):
                artifact.set_string_custom_property(name, value)
            elif isinstance(value, int):
                artifact.set_int_custom_property(name, value)
            else:
                artifact.set_float_custom_property(name, value)


class InputReportSpec(ComponentSpec):
    """Inputs, outputs and parameters of InputReport."""

    PARAMETERS = {"max_wait_fraction": ExecutionParameter(type=float, optional=True)}
    INPUTS = {
        MODEL_RUN: ChannelParameter(type=standard_artifacts.ModelRun),
        EXAMPLES: ChannelParameter(type=standard_artifacts.Examples, optional=True),
        TRANSFORM_GRAPH: ChannelParameter(type=standard_artifacts.TransformGraph, optional=True),
    }
    # Kubeflow and Vertex name a custom type `<module>.<Name>`, and the container imports that name before the executor.
    # A type in a package would compile, but the container could not import it. So this is a type of TFX.
    OUTPUTS = {REPORT: ChannelParameter(type=simple_artifacts.Metrics)}


class InputReport(base_component.BaseComponent):
    """Report whether training waited for its input, from the measurements of the Trainer.

    Output `report`: an artifact with `report.html`, for people, and `report.json`, for programs. Its custom properties
    are `verdict` ("input-bound", "balanced", "compute-bound", "overhead-bound" or "unclear"), `wait_fraction` (0 to 1,
    without the first epoch if there are more), `wait_uncertainty` (plus or minus), `bottleneck` (the stage that sets
    the pace, or empty) and, with a limit, `blessed` (1 or 0).

    Args:
      model_run: the `model_run` of infeed's Trainer, which holds `input_profile.json`.
      examples: Examples that the Trainer read. With a manifest, the report also judges the number of shards.
      transform_graph: TransformGraph that the Trainer applied, listed in the report.
      max_wait_fraction: largest share of the training time, 0 to 1, that training may wait for input and still be
        blessed.

    Raises:
      InfeedError: the limit is not between 0 and 1.
    """

    SPEC_CLASS = InputReportSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(InputReportExecutor)

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
        if "IPython" in sys.modules:  # may be a notebook
            show_in_notebooks()
        super().__init__(spec=spec)


def show_in_notebooks() -> None:
    """Let `InteractiveContext.show` display reports, as it displays statistics. Repeated calls have no effect."""
    from IPython.display import HTML, display
    from tfx.orchestration.experimental.interactive import visualizations

    class ReportVisualization(visualizations.ArtifactVisualization):
        """The HTML page of a report in a frame. Other artifacts of the same type show nothing."""

        ARTIFACT_TYPE = simple_artifacts.Metrics

        def display(self, artifact: types.Artifact) -> None:
            page = Path(artifact.uri, "report.html")
            if page.exists():
                frame = notebook_frame(page.read_text(encoding="utf-8"))
                display(HTML(f"<div>{frame}</div>"))  # IPython warns about text that begins with an iframe

    visualizations.get_registry().register(ReportVisualization)
