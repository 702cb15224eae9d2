"""What runs a compiled pipeline, and what it does not have; told before anything is compiled, and without TFX."""

from __future__ import annotations

from typing import Literal

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.options import DEFAULT, Deploy, Resources
from infeed.pipelines.deploy.vertex_options import VertexOptions

Target = Literal["kubeflow", "vertex"]
Schema = Literal["2.0", "2.1"]

_ACCELERATOR_NAMES = {
    "kubeflow": "Use the name of a Kubernetes resource, such as nvidia.com/gpu or google.com/tpu.",
    "vertex": "Use Vertex AI's own name, such as NVIDIA_TESLA_T4 or NVIDIA_L4.",
}


def check_target(deploy: Deploy, target: Target, schema: Schema = "2.1") -> None:
    """Raises InfeedError where `deploy` lacks an image, or something is asked for that the target does not have."""
    if target == "kubeflow" and schema != "2.1":
        raise InfeedError(f"Kubeflow reads schema 2.1 alone, not {schema}", where="option schema", do="Leave it out.")
    if not deploy.image:
        raise InfeedError(
            "there is no container image for the steps",
            where="deploy.image",
            do="Name one there or with --image; it holds this package and the project.",
        )
    for node, resources in deploy.resources.items():
        _check_resources(resources, target, f"deploy.resources.{node}")
    if target == "vertex" and deploy.vertex:
        _check_root(deploy, deploy.vertex)
        _check_one_place_to_train(deploy, deploy.vertex)


def vertex_accelerators(deploy: Deploy) -> set[str]:
    """The accelerators that anything on Vertex AI is to have."""
    machines = [deploy.vertex.training, deploy.vertex.endpoint] if deploy.vertex else []
    named = [machine.accelerator for machine in (*deploy.resources.values(), *machines) if machine]
    return {name for name in named if name}


def _check_resources(resources: Resources, target: Target, where: str) -> None:
    if resources.accelerator and ("/" in resources.accelerator) != (target == "kubeflow"):
        raise InfeedError(
            f"{target} knows no accelerator {resources.accelerator!r}", where=where, do=_ACCELERATOR_NAMES[target]
        )
    if target == "vertex" and (resources.node_selector or resources.tolerations):
        raise InfeedError(
            "Vertex AI has no node selectors and no tolerations", where=where, do="Name an accelerator instead."
        )


def _check_root(deploy: Deploy, vertex: VertexOptions) -> None:
    """Training, Dataflow and an endpoint run on other machines than the steps, and meet them in a bucket alone."""
    services = [name for name in ("training", "dataflow", "endpoint") if getattr(vertex, name)]
    if services and not (deploy.root or "").startswith(("gs://", "/gcs/")):
        raise InfeedError(
            f"{services[0]} cannot read what the steps write to {deploy.root or 'a folder of this machine'}",
            where="deploy.root",
            do="Name a folder of a bucket, such as gs://bucket/flowers.",
        )


def _check_one_place_to_train(deploy: Deploy, vertex: VertexOptions) -> None:
    for node in (DEFAULT, "Trainer") if vertex.training else ():
        if deploy.resources.get(node, Resources()).accelerator:
            raise InfeedError(
                "the step of the Trainer has an accelerator, and would only wait for the custom job that trains",
                where=f"deploy.resources.{node}",
                do="Name the accelerator under deploy.vertex.training alone.",
            )
