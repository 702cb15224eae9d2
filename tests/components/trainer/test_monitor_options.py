from __future__ import annotations

from typing import Any

import pytest

from infeed.components.errors import InfeedError
from infeed.components.trainer.monitor_options import MlflowOptions, PrometheusOptions


@pytest.mark.parametrize(
    ("kind", "given", "option"),
    [
        (PrometheusOptions, {}, "port"),
        (PrometheusOptions, {"port": 0}, "port"),
        (PrometheusOptions, {"textfile": "/var/lib/node_exporter/taxi.txt"}, "textfile"),
        (MlflowOptions, {"uri": "https://me:secret@tracking.example.org"}, "uri"),
    ],
)
def test_options_that_cannot_work_are_refused(kind: Any, given: dict[str, Any], option: str) -> None:
    with pytest.raises(InfeedError, match=option) as caught:
        kind(**given)
    assert "secret" not in str(caught.value)
