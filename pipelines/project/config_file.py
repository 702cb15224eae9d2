"""Reading of a project: a YAML file next to its functions, or a template.

The YAML reader is strict and rejects ambiguous input.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import yaml

from infeed.components.base import schema, user_code
from infeed.components.base.annotations import Count, Placeholder, Positive
from infeed.components.base.checks import about, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import OnBadRow, has_spans
from infeed.components.engine.beam_runner import Named
from infeed.components.transform.kinds.image import Resize
from infeed.pipelines.config import Source, check_wait_fraction
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.surveys import Survey, Task

TEMPLATES = ("image", "tabular", "text")
_MOST_BYTES = 1 << 20  # maximum size of a file, also after expanding its aliases
_DEEPEST = 50
_OF_YAML_1_1 = re.compile(r"\d{4}-|[-+]?(\d[\d_]*:|0[\d_]+$)")  # dates, and numbers to the base of 60 or 8


@dataclass(frozen=True)
class LabelSettings:
    """Settings of one of several labels.

    Attributes:
      task: kind of prediction. Defaults to the kind of the column.
      threshold: probability above which a prediction is the second of two classes, or a class of a set.
    """

    task: Task | None = None
    threshold: float = 0.5

    def __post_init__(self) -> None:
        require(0 < self.threshold < 1, self, "threshold", "use a probability between 0 and 1")


@dataclass(frozen=True)
class Settings:
    """Settings of a config file; see docs/config.md.

    Attributes:
      source: format of the data. Or, instead of `data`, a function that returns the rows, as `file.py:function` or
          `package.module:function`.
      data: a file, a folder of files, or a pattern. For `images`, a folder of class folders. Relative paths start at
          the current folder, as in `--data`. `{SPAN}`, or `{YYYY}`, `{MM}` and `{DD}`, are spans.
      spans: number of latest spans to read. Defaults to all.
      label: label column; `label/text` for images. A list names several labels of a table, and a mapping gives
          each its `task` and `threshold`: `{price: {task: regression}, sold: {}}`. If neither the config nor `--label`
          sets it, commands on a terminal ask for it. Otherwise, the error lists the likely columns. The label of a
          template applies only to its own data.
      features: features of the columns: a list, or a function that returns one.
      preprocessing_fn: your own tft preprocessing function, instead of `features` or in addition to them.
      model: function that builds the Keras model, as `file.py:function` or `package.module:function`.
      name: name of the pipeline. Defaults to the name of the folder.
      delimiter: field delimiter of CSV files. Defaults to a comma, or a tab for `.tsv`.
      source_options: options of the format, by name: `{encoding: latin-1, nulls: ["", "NA"]}`.
      ingest: options of `infeed ingest`, by name.
      on_bad_row, bad_row_limit: the same settings as under `ingest`, at the top level of the file.
      resize: resize method for images: stretch (the default) ignores the aspect ratio, fit pads with black, crop cuts
          off the margins.
      keep: column to use even if it gives the label away, or is text that differs in nearly every row.
      strict: stop if a column gives the label away, or if other splits repeat rows of train.
      task: kind of prediction. Defaults to the kind of the label column: a list is a set of classes (`multilabel`).
      root: folder for all outputs. Defaults to `runs/NAME`.
      train: options of training and of the feed, by name. The defaults of `epochs`, `batch_size` and `patience` depend
        on the number of rows.
      hparams: hyperparameters, which the model function receives as `spec.hparams`.
      augment, normalise: augmentation and normalization of images.
      blessing: score that a model must reach to be pushed: `metric`, `bound`, `slack`, `positive` and `output`.
          Defaults to a better score than guessing.
      warm_start: start training from the weights of the latest blessed model. On Kubeflow, the latest pushed model.
      max_wait_fraction: withhold the blessing of InputReport if training waited for a larger share of its time.
      beam_pipeline_args: Beam options of local runs. `--runner=NAME` replaces the local runner. A compiled pipeline
          uses those of `deploy`.
      deploy: settings for Kubeflow, Vertex AI and Beam on a cluster.
    """

    source: Source
    data: str
    model: str
    label: Mapping[str, LabelSettings] | tuple[str, ...] | str | None = None
    features: Any = None
    preprocessing_fn: str | None = None
    name: str | None = None
    delimiter: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)
    ingest: Mapping[str, Any] = field(default_factory=dict)
    spans: Positive | None = None
    on_bad_row: OnBadRow | None = None
    bad_row_limit: Count | None = None
    task: Task | None = None
    resize: Resize | None = None
    keep: Annotated[tuple[str, ...], Placeholder("COLUMN")] = ()
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
        one = "set the task of each label: label: {price: {task: regression}, sold: {}}"
        require(self.task is None or len(self.labels) < 2, self, "task", one)
        given = self.features is not None or self.preprocessing_fn is not None
        require(given, self, "features", "list features, or set a preprocessing_fn")
        require(self.spans is None or has_spans(self.data), self, "spans", "write {SPAN} or dates in data")
        with about(self, "beam_pipeline_args"):
            Named.of(self.beam_pipeline_args)

    @property
    def labels(self) -> dict[str, LabelSettings]:
        """Label columns with their settings. Empty if no label is set."""
        if isinstance(self.label, Mapping):
            return dict(self.label)
        names = (self.label,) if isinstance(self.label, str) else self.label or ()
        return dict.fromkeys(names, LabelSettings(self.task))


@dataclass(frozen=True)
class Project:
    """Parsed config file and its folder."""

    name: str  # name of the pipeline
    folder: Path
    package: str | None  # package of a template, which contains its functions. None for other projects
    settings: Settings

    def reference(self, text: str) -> str:
        """Make a reference such as `model.py:build_model` loadable from any folder.

        The project folder is an import root: `networks.dense:build_model` is in its `networks/dense.py` if the file
        exists, and otherwise in an installed package.
        """
        module, colon, function = text.partition(":")
        if not module.endswith(".py"):
            inside = self.folder.joinpath(*module.split(".")).with_suffix(".py")
            return f"{inside}:{function}" if colon and not self.package and inside.is_file() else text
        if self.package:
            return f"{self.package}.{module.removesuffix('.py')}{colon}{function}"
        return f"{self.folder / module}{colon}{function}"

    def value(self, given: Any, survey: Survey, option: str) -> Any:
        """Return the value of a setting. If it is a function, return its result."""
        return user_code.load(self.reference(given), option)(survey) if isinstance(given, str) else given


def read_project(name_or_path: str) -> Project:
    """Read a template by name, or a config file by path.

    Raises InfeedError if there is no such template or file, it is not YAML, or a setting is invalid or missing.
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
    try:
        plain = read_yaml(path)
        if not isinstance(plain, dict):
            raise InfeedError("the file has no settings", do="copy the config.yaml of a template")
        source = plain.get("source")
        if isinstance(source, str) and ":" in source:  # a function that returns the rows
            if "data" in plain:
                do = "leave out data, or set source to its format"
                what = "data is set together with a function that returns the rows"
                raise InfeedError(what, where="data", do=do)
            plain |= {"source": "reader", "data": source}
        settings = schema.read(Settings, plain, "")
    except InfeedError as error:
        where = f"{path}, {error.where}" if error.where else str(path)
        raise InfeedError(error.what, where=where, do=error.do) from error
    return Project(settings.name or name, path.parent, package, settings)


def read_yaml(path: Path) -> Any:
    """Parse a file with one YAML document, in UTF-8, or in UTF-16 with a byte order mark.

    Raises InfeedError if the file is not YAML, has a duplicate key or an invalid value, or is too large or too deeply
    nested, also after expanding aliases. The error names the line.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise InfeedError("the file has more than 1 MB", do="use a config file, not data")
    data = path.read_bytes()
    try:
        return yaml.load(data, _Strict)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _invalid(error.problem or str(error), mark.line + 1 if mark else 1) from error
    except yaml.reader.ReaderError as error:
        raise _invalid(error.reason, data[: error.position].count(b"\n") + 1) from error


def _invalid(problem: str, line: int) -> InfeedError:
    return InfeedError(f"invalid YAML: {problem}", where=f"line {line}", do="correct the file at that line")


class _Strict(yaml.SafeLoader):
    """Strict YAML loader: rejects duplicate keys, and limits aliases and nesting.

    Numbers keep their text, for options that expect text, such as a git hash 12e4567. As in YAML 1.2, 1e-3 is a number,
    and dates, 1:30 and 010 are text.
    """

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._depth = 0
        self._size = 0
        self._sizes: dict[int, int] = {}  # size of each node, with aliases expanded

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, before = self.peek_event(), self._size  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _refusal(f"nested more than {_DEEPEST} deep", event)
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and id(node) not in self._sizes:
            raise _refusal(f"*{event.anchor} is inside its own value", event)
        own = len(node.value) + 1 if isinstance(node, yaml.ScalarNode) else 1
        self._size += self._sizes[id(node)] if isinstance(event, yaml.AliasEvent) else own
        self._sizes.setdefault(id(node), self._size - before)
        if self._size > _MOST_BYTES:
            raise _refusal("the file has more than 1 MB after expanding aliases", event)
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        first = dict[tuple[str, str], Any]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (other := first.setdefault((key.tag, key.value), key)) is not key:
                raise _refusal(f"{key.value!r} is already in line {other.start_mark.line + 1}", key)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag.endswith((":int", ":float", ":timestamp")) and _OF_YAML_1_1.match(node.value):
            return node.value
        try:
            return schema.number_with_text(super().construct_object(node, deep), node.value)
        except (ValueError, OverflowError) as error:  # such as a number of 5,000 digits
            raise _refusal(f"{node.value[:40]!r} is not a valid value: {error}", node) from error


_Strict.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _refusal(problem: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)
