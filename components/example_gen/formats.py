"""Formats by name, for whoever has a path or a query and no component: the command line."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import formatannotation
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.ingest import Input

_SOURCES = "infeed.components.example_gen.sources"
_WILDCARDS = set("*?[")


@dataclass(frozen=True)
class Format:
    """How to open one kind of source; its module is imported when it is opened.

    Args:
      module: in `sources`.
      open: the function `(root, patterns, options[, settings])` in it; `(queries, options, settings)` for a database.
      settings: the class of its own options, empty where it has none.
      suffixes: of names that show the format.
      folders: the module whose `default_pattern` finds the files of a folder, where classes may have folders.
      is_query: the source is a query or a table, not a path.
    """

    module: str
    open: str
    settings: str = ""
    suffixes: tuple[str, ...] = ()
    folders: str = ""
    is_query: bool = False


FORMATS = {
    "csv": Format("csv", "open_csv", "CsvOptions", (".csv", ".csv.gz", ".csv.zst")),
    "jsonl": Format("jsonl", "open_jsonl", "JsonlOptions", (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")),
    "parquet": Format("parquet", "open_parquet", "ParquetOptions", (".parquet",)),
    "avro": Format("avro", "open_avro", "", (".avro",)),
    "tfrecord": Format("tfrecord", "open_tfrecords", "", (".tfrecord", ".tfrecord.gz", ".tfrecords", ".tfrecords.gz")),
    "images": Format("images", "open_images", "ImageOptions", (".png", ".jpg", ".jpeg"), "images"),
    "text": Format("text", "open_text", "TextOptions", (".txt",), "folders"),
    "binary": Format("binary", "open_binary", "", (), "folders"),
    "sql": Format("sql", "open_sql", "SqlOptions", is_query=True),
    "bigquery": Format("bigquery", "open_bigquery", "BigQueryOptions", is_query=True),
}


def open_source(source: str, kind: str, options: IngestOptions, settings: Mapping[str, Any]) -> Input:
    """Opens a folder, a file or a pattern with wildcards, or asks a database.

    Raises:
      InfeedError: an unknown setting, or whatever opening the source finds wrong.
    """
    found = FORMATS[kind]
    module = importlib.import_module(f"{_SOURCES}.{found.module}")
    own = [_settings(getattr(module, found.settings), settings)] if found.settings else []
    if settings and not own:
        raise InfeedError(f"no setting {min(settings)!r}", where=f"format {kind}", do="leave it out")
    where: tuple[Any, ...] = ({None: source},)
    if not found.is_query:
        root, pattern = _locate(source, found)
        where = (root, {None: pattern})
    opened: Input = getattr(module, found.open)(*where, options, *own)
    return opened


def guess_format(source: str) -> str:
    """The format that the names of files show; the first name that shows one decides.

    Raises:
      InfeedError: nothing there, or nothing known.
    """
    for name in _names(source):
        for kind, found in FORMATS.items():
            if found.suffixes and name.lower().endswith(found.suffixes):
                return kind
    raise InfeedError("cannot tell the format", where=source, do=f"give --format: one of {', '.join(FORMATS)}")


def _names(source: str) -> list[str]:
    if _WILDCARDS & set(source):
        return [source]
    if files.is_folder(source):
        return [file.path for pattern in ("*", "*/*") for file in files.glob(source, pattern)]
    if not files.exists(source):
        raise InfeedError("no such file or folder", where=source, do="check the path")
    return [source]


def _locate(source: str, found: Format) -> tuple[str, str]:
    """(folder, pattern of the files below it)"""
    parts = source.split("/")
    wild = next((number for number, part in enumerate(parts) if _WILDCARDS & set(part)), None)
    if wild is None and files.is_folder(source):
        return source, _pattern_in(source, found)
    cut = len(parts) - 1 if wild is None else wild
    return "/".join(parts[:cut]) or ("/" if source.startswith("/") else "."), "/".join(parts[cut:])


def _pattern_in(folder: str, found: Format) -> str:
    if not found.folders:
        return "*"
    pattern: str = importlib.import_module(f"{_SOURCES}.{found.folders}").default_pattern(folder)
    return pattern


def _settings(of: Any, given: Mapping[str, Any]) -> Any:
    names = [field.name for field in dataclasses.fields(of)]
    required = [field.name for field in dataclasses.fields(of) if _has_no_default(field)]
    for name in (*given, *required):
        if name not in names:
            raise InfeedError(f"no setting {name!r}", where=of.__name__, do=f"choose one of {', '.join(names)}")
        if name not in given:
            raise InfeedError(f"no {name} given", where=of.__name__, do=f"give --set {name}=VALUE")
    hints = get_type_hints(of)
    for name, value in given.items():
        if not _is_a(value, hints[name]):
            do = 'give it as JSON, such as header=false, names=["a", "b"] or size=[28, 28]'
            raise InfeedError(f"{name}={value!r} is no {formatannotation(hints[name])}", where=of.__name__, do=do)
    return of(**given)


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value out of JSON is of an annotated type; what is inside it, and choices, its class checks itself."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return any(_is_a(value, one) for one in get_args(hint))
    if kind is Literal:
        return isinstance(value, str)
    if kind in (tuple, Sequence):
        return isinstance(value, list)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
