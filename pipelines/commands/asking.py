"""Resolve the config of a project for a command, and ask for a missing label on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from infeed.components.errors import InfeedError
from infeed.components.kubeflow.packed import is_packed
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console.questions import Choice, can_ask, choose
from infeed.pipelines.console.terminal import command_line
from infeed.pipelines.project.config_file import Project, read_project
from infeed.pipelines.project.labels import LabelNeededError
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.resolved import read_resolved

_TYPES = {"int": "whole numbers", "float": "numbers", "bytes": "text"}


def decided(project: Project, given: Mapping[str, Any], *, may_ask: bool = True) -> PipelineConfig:
    """Resolve the config of a project. If the label is missing, ask for it on a terminal.

    Args:
      given: fields of `Overrides`.
      may_ask: False if the output is for a program.

    Raises:
      InfeedError: see `resolve`. If the label is missing and nobody can answer, the error suggests a command line.
    """
    try:
        return resolve(project, Overrides(**given))
    except LabelNeededError as error:
        if given.get("label") or not error.candidates:
            raise
        if not (may_ask and can_ask()):
            again = command_line(*sys.argv[1:], "--label", error.candidates[0].name)
            raise InfeedError(error.what, where=error.where, do=f"{error.do}; for example:\n{again}") from error
        choices = []
        for one in error.candidates:
            facts = {"type": _TYPES[one.type], "different values": f"{one.distinct:,}", "examples": one.examples}
            choices.append(Choice(one.name, facts, ", ".join(one.reasons)))
        label = choose("Which column should the model learn?", choices)
    sys.argv += ["--label", label]  # the suggested next commands repeat the arguments
    return resolve(project, Overrides(**{**given, "label": label}))


def is_project(text: str) -> bool:
    """Report whether `text` is a config file, or the config of a compiled job, rather than data."""
    return text.endswith((".yaml", ".yml")) or is_packed(text)


def config_of(project: str, given: Mapping[str, Any], *, may_ask: bool = True) -> PipelineConfig:
    """Read and resolve a project, as `decided` does, or return the config that a compiled job has resolved."""
    return read_resolved(project, given) or decided(read_project(project), given, may_ask=may_ask)
