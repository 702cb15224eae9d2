"""How a report shows itself; that `InteractiveContext` does so is in tests/test_notebooks.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tfx


def test_a_report_is_shown_in_a_frame_and_other_metrics_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfx.orchestration.experimental.interactive import visualizations
    from tfx.types.experimental import simple_artifacts

    from infeed.components.input_report import notebook

    shown: list[Any] = []
    monkeypatch.setattr(notebook, "display", shown.append)
    notebook.register()
    notebook.register()
    artifact = simple_artifacts.Metrics()
    artifact.uri = str(tmp_path)
    visualization = visualizations.get_registry().get_visualization(artifact.type_name)
    visualization.display(artifact)
    assert not shown
    (tmp_path / "report.html").write_text('<p class="verdict">balanced</p>')
    visualization.display(artifact)
    assert 'srcdoc="&lt;p class=&quot;verdict&quot;&gt;' in shown[0].data
