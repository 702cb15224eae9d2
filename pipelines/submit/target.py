"""Where a job goes to. Imports a platform's client when it is used, and not before: each takes seconds."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.components.errors import InfeedError
from infeed.pipelines.submit.run import Request, Run

_CHOOSE = "give --host for Kubeflow, or --project and --region for Vertex AI"


@dataclass(frozen=True)
class Target:
    """Where to: Kubeflow Pipelines by its host, or Vertex AI by project and region."""

    host: str | None
    namespace: str | None
    project: str | None
    region: str | None
    endpoint: str | None

    def __post_init__(self) -> None:
        vertex = {"--project": self.project, "--region": self.region, "--endpoint": self.endpoint}
        if self.host and (given := [name for name, value in vertex.items() if value]):
            raise InfeedError(f"{given[0]} is of Vertex AI, and --host of Kubeflow", do=_CHOOSE)
        if self.host is None:
            missing = [name for name in ("--project", "--region") if not vertex[name]]
            if missing:
                what = "no --host, and no --project and --region" if len(missing) == 2 else f"no {missing[0]}"
                raise InfeedError(what, do=_CHOOSE)
            if self.namespace:
                raise InfeedError("--namespace is of Kubeflow, and --project of Vertex AI", do=_CHOOSE)

    def submit(self, request: Request) -> Run:
        if self.host is not None:
            from infeed.pipelines.submit.kubeflow import submit_kubeflow

            return submit_kubeflow(request, host=self.host, namespace=self.namespace)
        from infeed.pipelines.submit.vertex import submit_vertex

        assert self.project is not None
        assert self.region is not None
        return submit_vertex(request, project=self.project, region=self.region, endpoint=self.endpoint)
