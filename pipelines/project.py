"""A project as its file says it: a YAML file beside the functions that it names, or one of the templates.

    project = read_project("image")                 # a template's name, or the path of a config.yaml

In the file, `features`, `augment`, `hparams` and `blessing` may be given as they are, or as `file.py:function`, which
is called with the survey of the data. Files are looked for beside the config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.settings import read_settings
from infeed.pipelines.sources import Source
from infeed.pipelines.survey import Survey, Task

TEMPLATES = ("image", "tabular")


@dataclass(frozen=True)
class Settings:
    """What stands in the file; the settings are told in docs/config.md.

    Attributes:
      name: of the pipeline; by default that of the folder.
      train: the options of training and of its feed, by name.
      features, hparams, augment, blessing: as they are, or the function that makes them of the survey.
    """

    source: Source
    data: str
    label: str
    features: Any
    model: str
    name: str | None = None
    delimiter: str = ","
    task: Task | None = None
    root: str | None = None
    hparams: Any = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    augment: Any = None
    normalise: Any = None
    blessing: Any = None
    max_wait_fraction: float | None = None
    beam_pipeline_args: tuple[str, ...] = ()
    deploy: Deploy = field(default_factory=Deploy)


@dataclass(frozen=True)
class Project:
    """A config file as read, with the folder that its own files are in.

    Attributes:
      name: of the pipeline.
      folder: of the file.
      package: of a template that is part of this package: its functions are imported, not loaded from files.
      settings: what stands in the file.
    """

    name: str
    folder: Path
    package: str | None
    settings: Settings

    def reference(self, text: str) -> str:
        """`model.py:build_model` as something that can be loaded from anywhere."""
        module, colon, function = text.partition(":")
        if not module.endswith(".py"):
            return text
        if self.package:
            return f"{self.package}.{module.removesuffix('.py')}{colon}{function}"
        return f"{self.folder / module}{colon}{function}"

    def value(self, given: Any, survey: Survey, option: str) -> Any:
        """What stands in the file, or what the function named there makes of the survey."""
        if not isinstance(given, str):
            return given
        return user_code.load(self.reference(given), option)(survey)


def read_project(name_or_path: str) -> Project:
    """Reads a template by name, or a config file by path.

    Raises:
      InfeedError: neither a template nor a file, not YAML, or a setting that does not exist, is missing or is of
        another type.
    """
    if name_or_path in TEMPLATES:
        package = f"infeed.templates.{name_or_path}"
        path, name = Path(str(resources.files(package) / "config.yaml")), name_or_path
    else:
        package, path = None, Path(name_or_path).resolve()
        path = path / "config.yaml" if path.is_dir() else path
        name = path.parent.name
    if not path.is_file():
        raise InfeedError(
            f"there is no template or config file {name_or_path!r}",
            do=f"Use one of the templates ({', '.join(TEMPLATES)}), or the path of a config.yaml.",
        )
    settings = _read_settings(path)
    return Project(settings.name or name, path.parent, package, settings)


def _read_settings(path: Path) -> Settings:
    try:
        return read_settings(Settings, _read_yaml(path), "")
    except InfeedError as error:
        where = f"{path}, {error.where}" if error.where else str(path)
        raise InfeedError(error.what, where=where, do=error.do) from error


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except yaml.YAMLError as error:
        raise InfeedError(f"not valid YAML: {error}", do="Mend the file at that line.") from error
    if not isinstance(settings, dict):
        raise InfeedError("the file holds no settings", do="Copy a template's config.yaml to start from.")
    return settings


class _Loader(yaml.SafeLoader):
    """PyYAML's, which reads 1e-3 as a text, as YAML 1.1 has it: a learning rate is meant to be a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)
