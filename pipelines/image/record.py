"""Records the last image that `infeed build` built for a project, so that `infeed compile` can use its digest."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from infeed.components import schema
from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.pipelines.image.build import BuiltImage


def remember(built: BuiltImage, project: str) -> None:
    """Record the built image of a project."""
    files.write_bytes(_record(project), json.dumps(dataclasses.asdict(built), indent=1).encode())


def last_built(tag: str, project: str) -> BuiltImage | None:
    """Return the last build of the project if it built `tag` and the digest is known."""
    try:
        built = schema.read_json(BuiltImage, files.read_bytes(_record(project)))
    except (FileNotFoundError, ValueError, InfeedError):  # no record, or a record of another release
        return None
    return built if built.tag == tag and "@" in built.image else None


def _record(project: str) -> str:
    return str(Path("runs", project, "image.json"))
