"""Export of the pace of a training to Prometheus, over HTTP or by a file for node_exporter."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from infeed.components.errors import InfeedError, required
from infeed.components.trainer.monitor_options import PrometheusOptions
from infeed.components.trainer.pace import Observer, Pace

_log = logging.getLogger(__name__)
_VALUES = {
    "step": "Steps done.",
    "epoch": "Current epoch, counted from 1.",
    "examples_per_second": "Examples trained on each second.",
    "waiting_ratio": "Share of the time that training waits for data.",
    "left_seconds": "Seconds until the last epoch ends, without early stopping.",
}


@contextlib.contextmanager
def exporting(options: PrometheusOptions) -> Iterator[Observer]:
    """Yield the observer of a training whose pace is exported until the block ends.

    Raises:
      InfeedError: prometheus_client is not installed, or the port cannot be opened.
    """
    client = required("prometheus_client")
    registry = client.CollectorRegistry()
    gauges = _Gauges(client, registry, options)
    with contextlib.ExitStack() as stack:
        if options.port:
            try:
                server, thread = client.start_http_server(options.port, options.address, registry=registry)
            except OSError as error:
                what = f"port {options.port} cannot be opened: {error}"
                do = "use a free port, or end the process that has this one"
                raise InfeedError(what, where="option prometheus.port", do=do) from error
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        textfile = stack.enter_context(_Textfile(client, registry, options.textfile)) if options.textfile else None

        def observe(pace: Pace) -> None:
            gauges(pace)
            if textfile:
                textfile.write()

        yield observe


class _Gauges:
    def __init__(self, client: Any, registry: Any, options: PrometheusOptions) -> None:
        names, self._labels = list(options.labels), dict(options.labels)

        def gauge(name: str, text: str, *more: str) -> Any:
            return client.Gauge(f"infeed_training_{name}", text, [*names, *more], registry=registry)

        self._gauges = {name: gauge(name, text) for name, text in _VALUES.items()}
        self._metric = gauge("metric", "Loss and metrics of training and validation.", "name")

    def __call__(self, pace: Pace) -> None:
        values = (pace.done, pace.epoch, pace.examples_per_second, pace.waited, pace.seconds_left)
        for gauge, value in zip(self._gauges.values(), values, strict=True):
            if value is not None:
                _labeled(gauge, self._labels).set(value)
        for name, value in pace.metrics.items():
            _labeled(self._metric, {**self._labels, "name": name}).set(value)


def _labeled(gauge: Any, labels: dict[str, str]) -> Any:
    return gauge.labels(**labels) if labels else gauge


class _Textfile:
    """File that is replaced at each observation. If it cannot be written, the log has one warning; training goes on."""

    def __init__(self, client: Any, registry: Any, path: str) -> None:
        self._client, self._registry, self._path, self._given_up = client, registry, path, False

    def write(self) -> None:
        if self._given_up:
            return
        try:
            self._client.write_to_textfile(self._path, self._registry)
        except OSError as error:
            self._given_up = True
            _log.warning("no more metrics for Prometheus, which cannot be written to %s: %s", self._path, error)

    def __enter__(self) -> _Textfile:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            os.remove(self._path)
