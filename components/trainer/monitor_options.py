"""Options of the services that a training reports to while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from infeed.components.annotations import Range
from infeed.components.checks import check_fields, refused, require


@dataclass(frozen=True)
class PrometheusOptions:
    """Metrics of a running training for Prometheus.

    Attributes:
      port: port of an HTTP server in the process that trains, or None.
      address: address that the server listens on.
      textfile: file in the folder of node_exporter's textfile collector, with the suffix `.prom`, or None. It is
        removed when training ends.
      labels: labels of all metrics, such as {"model": "taxi"}.
    """

    port: Annotated[int, Range(1, 65535)] | None = None
    address: str = "0.0.0.0"
    textfile: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.port is None and self.textfile is None:
            raise refused(self, "port", "give a port or a textfile", "neither port nor textfile is given")
        require((self.textfile or ".prom").endswith(".prom"), self, "textfile", "use a name that ends in .prom")


@dataclass(frozen=True)
class MlflowOptions:
    """MLflow server or store that records trainings.

    Attributes:
      uri: tracking URI, without user and password, which MLflow reads from MLFLOW_TRACKING_USERNAME and
        MLFLOW_TRACKING_PASSWORD. None takes MLFLOW_TRACKING_URI.
      experiment: name of the experiment, which is created if it does not exist.
      run_name: name of the run; None lets MLflow choose one.
    """

    uri: str | None = None
    experiment: str = "infeed"
    run_name: str | None = None

    def __post_init__(self) -> None:
        if "@" in urlsplit(self.uri or "").netloc:
            what = "uri contains a user or a password, which would be stored with the options"
            raise refused(self, "uri", "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead", what)
