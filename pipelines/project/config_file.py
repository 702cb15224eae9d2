"""A project as its file says it: a YAML file beside the functions that it names, or one of the templates.

YAML is read strictly: what would be taken otherwise than it looks is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from infeed.components import schema, user_code
from infeed.components.checks import at_least, require
from infeed.components.dataset.options import OnBadRow
from infeed.components.errors import InfeedError
from infeed.components.transform.kinds.image import Resize
from infeed.pipelines.config import Source, check_wait_fraction
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.surveys import Survey, Task

TEMPLATES = ("image", "tabular", "text")
_MOST_BYTES = 1 << 20  # of a file, and of what it becomes with each alias written out
_DEEPEST = 50


@dataclass(frozen=True)
class Settings:
    """What stands in the file; docs/config.md explains the settings.

    Attributes:
      label: the column to learn; None: the command line names it.
      name: of the pipeline; by default that of the folder.
      train: the options of training and of its feed, by name.
      keep: columns that are learned from even if they give the label away.
      strict: whether a column that gives the label away, and is not kept, is an error.
      features, hparams, augment, blessing: as they are, or the function that makes them of the survey.
      ingest: how rows become splits and shards, by the names of `IngestSettings`.
      on_bad_row, bad_row_limit: those of `ingest`, which may stand at the top as well.
      preprocessing_fn: a function as tft has it, in place of features or beside them; of a file alone its function of
        that name.
    """

    source: Source
    data: str
    model: str
    label: str | tuple[str, ...] | None = None  # several are an error that says what to do
    features: Any = None
    preprocessing_fn: str | None = None
    name: str | None = None
    delimiter: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)
    ingest: Mapping[str, Any] = field(default_factory=dict)
    on_bad_row: OnBadRow | None = None
    bad_row_limit: int | None = None
    task: Task | None = None
    resize: Resize | None = None
    keep: tuple[str, ...] = ()
    strict: bool = False
    root: str | None = None
    hparams: Any = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    augment: Any = None
    normalise: Any = None
    blessing: Any = None
    warm_start: bool = False
    max_wait_fraction: float | None = None
    beam_pipeline_args: tuple[str, ...] = ()
    deploy: Deploy = field(default_factory=Deploy)

    def __post_init__(self) -> None:
        check_wait_fraction(self)
        given = self.features is not None or self.preprocessing_fn is not None
        require(given, self, "features", "list features there, or name a preprocessing_fn")
        at_least(self, 0, "bad_row_limit")

    @property
    def at_top(self) -> dict[str, Any]:
        """The settings of `ingest` that stand at the top of the file."""
        given = {"on_bad_row": self.on_bad_row, "bad_row_limit": self.bad_row_limit}
        return {name: value for name, value in given.items() if value is not None}


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
        """`model.py:build_model` as something that can be loaded from anywhere.

        The project's folder is an import root: `networks.dense:build_model` names its `networks/dense.py`, if there is
        one, and an installed package otherwise.
        """
        module, colon, function = text.partition(":")
        if not module.endswith(".py"):
            inside = self.folder.joinpath(*module.split(".")).with_suffix(".py")
            return f"{inside}:{function}" if colon and not self.package and inside.is_file() else text
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
        package, path = None, Path(os.path.realpath(name_or_path))
        path = path / "config.yaml" if path.is_dir() else path
        name = path.parent.name
    if not path.is_file():
        raise InfeedError(
            f"there is no template or config file {name_or_path!r}",
            do=f"use one of the templates ({', '.join(TEMPLATES)}), or the path of a config.yaml",
        )
    settings = _read_settings(path)
    return Project(settings.name or name, path.parent, package, settings)


def _read_settings(path: Path) -> Settings:
    try:
        return schema.read(Settings, _read_mapping(path), "")
    except InfeedError as error:
        where = f"{path}, {error.where}" if error.where else str(path)
        raise InfeedError(error.what, where=where, do=error.do) from error


def _read_mapping(path: Path) -> dict[str, Any]:
    settings = read_yaml(path)
    if not isinstance(settings, dict):
        raise InfeedError("the file holds no settings", do="copy a template's config.yaml to start from")
    return settings


def read_yaml(path: Path) -> Any:
    """The one document of the file, in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
      InfeedError: no YAML, a name that a mapping holds twice, a value that is none, or a file that is too large, too
        deeply nested or grows too much by its aliases; with the line.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise InfeedError("more than 1 MB", do="give a config file; data does not belong in it")
    data = path.read_bytes()
    try:
        return yaml.load(data, _Strict)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _invalid(error.problem or str(error), mark.line + 1 if mark else 1) from error
    except yaml.reader.ReaderError as error:
        raise _invalid(error.reason, data[: error.position].count(b"\n") + 1) from error


def _invalid(problem: str, line: int) -> InfeedError:
    return InfeedError(f"not valid YAML: {problem}", where=f"line {line}", do="mend the file at that line")


class _Strict(yaml.SafeLoader):
    """PyYAML's, which keeps the last of two equal names, and follows aliases and nesting however far they go.

    It reads 1e-3 as a text, too, as YAML 1.1 has it: a learning rate is meant to be a number.
    """

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._depth = 0
        self._size = 0
        self._sizes: dict[int, int] = {}  # of nodes, by identity, each alias in them written out

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, before = self.peek_event(), self._size  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _refusal(f"nested more than {_DEEPEST} deep", event)
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and id(node) not in self._sizes:
            raise _refusal(f"*{event.anchor} stands inside of what it names", event)
        own = len(node.value) + 1 if isinstance(node, yaml.ScalarNode) else 1
        self._size += self._sizes[id(node)] if isinstance(event, yaml.AliasEvent) else own
        self._sizes.setdefault(id(node), self._size - before)
        if self._size > _MOST_BYTES:
            raise _refusal("aliases make more than 1 MB of it", event)
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        first = dict[tuple[str, str], Any]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (other := first.setdefault((key.tag, key.value), key)) is not key:
                raise _refusal(f"{key.value!r} stands in line {other.start_mark.line + 1} already", key)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:  # the 45th of May; a number of 5,000 digits
            raise _refusal(f"{node.value[:40]!r} is no value: {error}", node) from error


_Strict.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def _refusal(problem: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)
