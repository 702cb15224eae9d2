"""Raw columns of a model that infeed's Trainer exported, readable without TensorFlow."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import ColumnType, Manifest

_FEW_WORDS = 1024  # bytes of a vocabulary of booleans, at most
_OTHER_ROOT = "pipelines for other data need another root (--root)"


@dataclass(frozen=True)
class RawColumns:
    """Columns of the training data that a model reads, and the options with which their files were read."""

    columns: tuple[str, ...]  # columns of a prediction
    source_options: Mapping[str, Mapping[str, Any]]  # options of the training files, by format
    types: Mapping[str, ColumnType] = field(default_factory=dict)  # types of all columns that an evaluation parses
    outputs: Mapping[str, str] = field(default_factory=dict)  # output -> task. The only output has the name ""
    dates: Mapping[str, Sequence[str]] = field(default_factory=dict)  # formats of the dates in text columns
    truths: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # words for false and true in text columns

    @classmethod
    def of(cls, folder: str) -> RawColumns | None:
        """Return the columns of the model in a folder. None if another exporter wrote it."""
        path = files.join(folder, names.RAW_COLUMNS)
        if not files.exists(path):
            return None
        described = json.loads(files.read_bytes(path))
        optional = {name: described.get(name, {}) for name in ("types", "outputs", "dates")}
        return cls(tuple(described["columns"]), described["source_options"], **optional, truths=_truths(folder))

    def check_dataset(self, root: str, *, is_baseline: bool = False) -> None:
        """Raise InfeedError if a column of an ingested dataset has another type than in training."""
        if not files.exists(files.join(root, names.MANIFEST)):
            return
        manifest = Manifest.read(root)
        found = {one.name: one.type for one in manifest.schema}
        wrong = {name: kind for name, kind in self.types.items() if found.get(name, kind) != kind}
        if wrong:
            name, *others = wrong
            more = f"; types also differ in {', '.join(map(repr, others))}" if others else ""
            called, other = ("the baseline model", f"; {_OTHER_ROOT}") if is_baseline else ("the model", "")
            what = f"column {name!r} is {found[name]}, but {called} reads {wrong[name]}{more}"
            raise InfeedError(what, where=root, do=self._remedy(manifest.source.kind, wrong) + other)

    def _remedy(self, kind: str, wrong: Mapping[str, ColumnType]) -> str:
        if kind != "csv":
            columns = ", ".join(f"{name} as {one}" for name, one in wrong.items())
            return f"write {columns} in the source files, and ingest them again"
        trained = self.source_options.get(kind, {})
        options = {**trained, "types": {**trained.get("types", {}), **wrong}}
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in options.items()}
        flags = " ".join(f"--set {shlex.quote(f'{name}={text}')}" for name, text in texts.items())
        return f"read the source files as in training: infeed ingest SOURCE DATASET {flags}"


UNKNOWN = RawColumns((), {})  # of a model that another exporter wrote


def _truths(folder: str) -> dict[str, tuple[str, str]]:
    """Return the words for false and true of each column whose vocabulary spells them in another case than JSON."""
    found = {}
    for file in files.list_files(files.join(folder, "assets")):
        words = files.read_bytes(file.path).splitlines() if file.size <= _FEW_WORDS else []
        for truths in (("False", "True"), ("FALSE", "TRUE")):
            if not {b"false", b"true"} & {*words} and {truth.encode() for truth in truths} & {*words}:
                found[files.relative(file.path, files.join(folder, "assets"))] = truths
    return found


def check_dataset(model: str, root: str, *, is_baseline: bool = False) -> None:
    """If infeed's Trainer exported the model, check the dataset at `root` as `RawColumns.check_dataset` does."""
    if known := RawColumns.of(model):
        known.check_dataset(root, is_baseline=is_baseline)
