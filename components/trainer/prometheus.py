"""Export of the pace of a training to Prometheus, over HTTP or by a file for node_exporter."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from infeed.components.base.errors import InfeedError, required
from infeed.components.trainer.options import PrometheusOptions
from infeed.components.trainer.pace import Observer, Pace

_log = logging.getLogger(__name__)
_VALUES = {
    "step": "Steps done.",
    "epoch": "Current epoch, counted from 1.",
    "examples_per_second": "Examples trained on each second.",
    "waiting_ratio": "Share of the time that training waits for data.",
    "left_seconds": "Seconds until the last epoch ends, without early stopping.",
}


def _observer(client: Any, registry: Any, options: PrometheusOptions) -> Observer:
    """Return the observer that sets the metrics. If the textfile cannot be written, one warning ends its writing."""
    labels, textfile = dict(options.labels), options.textfile

    def gauge(name: str, text: str, *more: str) -> Any:
        return client.Gauge(f"infeed_training_{name}", text, [*labels, *more], registry=registry)

    gauges = [gauge(name, text) for name, text in _VALUES.items()]
    metric = gauge("metric", "Loss and metrics of training and validation.", "name")

    def observe(pace: Pace) -> None:
        nonlocal textfile
        values = (pace.done, pace.epoch, pace.examples_per_second, pace.waited, pace.seconds_left)
        for one, value in zip(gauges, values, strict=True):
            if value is not None:
                (one.labels(**labels) if labels else one).set(value)
        for name, value in pace.metrics.items():
            metric.labels(**{**labels, "name": name}).set(value)
        if textfile:
            try:
                client.write_to_textfile(textfile, registry)
            except OSError as error:
                _log.warning("no more metrics for Prometheus, which cannot be written to %s: %s", textfile, error)
                textfile = None

    return observe


@contextlib.contextmanager
def exporting(options: PrometheusOptions) -> Iterator[Observer]:
    """Yield the observer of a training whose pace is exported until the block ends.

    Raise InfeedError if prometheus_client is not installed, or the port cannot be opened.
    """
    client = required("prometheus_client")
    registry = client.CollectorRegistry()
    observe = _observer(client, registry, options)
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
        try:
            yield observe
        finally:
            if options.textfile:
                with contextlib.suppress(OSError):
                    os.remove(options.textfile)
