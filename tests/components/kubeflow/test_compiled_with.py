from __future__ import annotations

import pytest

from infeed.components.kubeflow import compiled_with


def test_a_step_warns_of_other_minor_versions_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    versions = {"tfx": "1.16.0", "apache-beam": "2.67.0", "tfx-infeed": None}
    monkeypatch.setattr(compiled_with, "version_of", versions.get)
    recorded = compiled_with.variables()
    assert recorded == {"INFEED_COMPILED_WITH": "tfx==1.16.0 apache-beam==2.67.0"}
    versions |= {"tfx": "1.16.1"}
    compiled_with.warn(recorded)
    assert not caplog.records
    versions |= {"tfx": None, "apache-beam": "2.77.0"}
    compiled_with.warn(recorded)
    [record] = caplog.records
    assert record.args == ("apache-beam", "2.67.0", "2.77.0")
