"""Display of an input report by `InteractiveContext.show`, as TFX displays statistics and schemas."""

from __future__ import annotations

from pathlib import Path

from IPython.display import HTML, display
from tfx import types
from tfx.orchestration.experimental.interactive import visualizations
from tfx.types.experimental import simple_artifacts

from infeed.components.base.drawing import notebook_frame


class ReportVisualization(visualizations.ArtifactVisualization):
    """The HTML page of a report in a frame. Other artifacts of the same type show nothing."""

    ARTIFACT_TYPE = simple_artifacts.Metrics

    def display(self, artifact: types.Artifact) -> None:
        page = Path(artifact.uri, "report.html")
        if page.exists():
            frame = notebook_frame(page.read_text(encoding="utf-8"))
            display(HTML(f"<div>{frame}</div>"))  # IPython warns about text that begins with an iframe


def register() -> None:
    """Register the display of reports with TFX. Repeated calls have no effect."""
    visualizations.get_registry().register(ReportVisualization)
