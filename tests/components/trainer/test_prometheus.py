from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import PrometheusOptions

pytestmark = pytest.mark.slow  # Keras takes seconds to load
parser = pytest.importorskip("prometheus_client.parser", reason="the extra prometheus is not installed")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def values(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and values of labels."""
    samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name.removeprefix("infeed_training_"), *sample.labels.values()): sample.value for sample in samples}


def scraped(port: int) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return values(answer.read().decode())


def test_a_scrape_and_the_textfile_have_the_latest_pace_while_training_runs(tmp_path: Path) -> None:
    from infeed.components.trainer.pace import Pace
    from infeed.components.trainer.prometheus import exporting

    file, port = tmp_path / "taxi.prom", free_port()
    with exporting(PrometheusOptions(port, "127.0.0.1", str(file), {"model": "taxi"})) as observe:
        observe(Pace(1, 4, 16, 100, 16, {"loss": 0.5}))
        assert scraped(port) == {("step", "taxi"): 16, ("epoch", "taxi"): 1, ("metric", "taxi", "loss"): 0.5}
        observe(Pace(1, 4, 32, 100, 32, {"loss": 0.25, "accuracy": 0.75}, 1024.0, 0.125, 30.0))
        shown = scraped(port)
        assert shown == {
            ("step", "taxi"): 32,
            ("epoch", "taxi"): 1,
            ("examples_per_second", "taxi"): 1024,
            ("waiting_ratio", "taxi"): 0.125,
            ("left_seconds", "taxi"): 30,
            ("metric", "taxi", "loss"): 0.25,
            ("metric", "taxi", "accuracy"): 0.75,
        }
        assert values(file.read_text()) == shown
    assert not file.exists()
    with pytest.raises(urllib.error.URLError):
        scraped(port)


def test_a_port_that_is_taken_is_an_error_before_training() -> None:
    from infeed.components.trainer.prometheus import exporting

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InfeedError, match=str(port)) as caught, exporting(PrometheusOptions(port, "127.0.0.1")):
            pass
    assert caught.value.where == "option prometheus.port"


def test_a_textfile_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from infeed.components.trainer.pace import Pace
    from infeed.components.trainer.prometheus import exporting

    with exporting(PrometheusOptions(textfile=str(tmp_path / "missing" / "taxi.prom"))) as observe:
        for step in (1, 2):
            observe(Pace(1, 1, step, 10, step))
    assert len(caplog.records) == 1
    assert "taxi.prom" in caplog.text
