"""Starts a project of one's own from a template."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from infeed.components.errors import InfeedError
from infeed.pipelines.project import TEMPLATES

_FILES = ("README.md", "config.yaml", "features.py", "model.py")


def create_project(template: str, folder: str) -> list[Path]:
    """Copies the template's files into a new or empty folder and returns where they are.

    Raises:
      InfeedError: there is no such template, or the folder holds something already.
    """
    if template not in TEMPLATES:
        raise InfeedError(f"there is no template {template!r}", do=f"Use one of {', '.join(TEMPLATES)}.")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InfeedError("there is something already", where=folder, do="Name a folder that is new or empty.")
    target.mkdir(parents=True, exist_ok=True)
    source = resources.files(f"infeed.templates.{template}")
    for name in _FILES:
        (target / name).write_text((source / name).read_text(encoding="utf-8"), encoding="utf-8")
    return [target / name for name in _FILES]
