"""The table of formats, the one place that names them. Executors and the command line open their input by it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from infeed.components import schema
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import (
    OpenedSource,
    Patterns,
    check_inside,
    check_irregular,
    reopenable,
    retyped,
    with_tasks,
)

_SOURCES = "infeed.components.example_gen.sources"
_WILDCARDS = set("*?[")
_TAB_SEPARATED = (".tsv", ".tsv.gz", ".tsv.zst", ".tab")
_TFRECORDS = tuple(f"{name}{zipped}" for name in (".tfrecord", ".tfrecords", "_tfrecord") for zipped in ("", ".gz"))
_NUMBER_OF_SHARD = re.compile(r"-\d+-of-\d+")  # which TFDS and TFX write behind the suffix or before it

# Formats that are known and not read, by suffix, with what to do.
_TO_JSONL = "write one object a line, such as by pandas' to_json(FILE, orient='records', lines=True), to a .jsonl file"
_TO_PARQUET = "write it as Parquet, such as by pandas' to_parquet, or as CSV"
_UNPACK = "unpack it; CSV, JSON Lines and text may be compressed by gzip or zstd"
_TO_PNG = "convert the pictures to PNG or JPEG"
PICTURES = (".bmp", ".gif", ".webp", ".tif", ".tiff", ".heic", ".avif")
NOT_READ = {
    ".json": _TO_JSONL,
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".feather", ".arrow", ".orc", ".h5", ".hdf5", ".pkl"), _TO_PARQUET),
    **dict.fromkeys((".npy", ".npz", ".mat", ".dta", ".sav", ".sas7bdat", ".rds", ".rdata"), _TO_PARQUET),
    **dict.fromkeys((".zip", ".tar", ".tar.gz", ".tgz", ".bz2", ".xz", ".7z", ".rar"), _UNPACK),
    **dict.fromkeys(PICTURES, _TO_PNG),
}


@dataclass(frozen=True)
class Format:
    """How to open one kind of source; its module is imported when it is opened.

    Attributes:
      module: in `sources`.
      open: the function `(root, patterns, options[, settings])` in it; for a database `(queries, options, settings)`,
        and beside it `fingerprint(queries, settings)`.
      sampled: like `open`, but takes types from a sample, which the tasks check; empty if there is none.
      settings: the class of its own options in it, empty where it has none.
      component: the ExampleGen of its own, by its name in `infeed.components`.
      suffixes: of names that show the format.
      folders: the module whose `default_pattern` finds the files of a folder, where classes may have folders.
      is_query: the source is a query or a table, not a path.
    """

    module: str
    open: str
    settings: str = ""
    component: str = "FileExampleGen"
    suffixes: tuple[str, ...] = ()
    folders: str = ""
    is_query: bool = False
    sampled: str = ""


FORMATS = {
    "csv": Format(
        "csv.reader",
        "open_csv",
        "CsvOptions",
        "CsvExampleGen",
        suffixes=(".csv", ".csv.gz", ".csv.zst", *_TAB_SEPARATED),
        sampled="open_sampled_csv",
    ),
    "jsonl": Format(
        "jsonl",
        "open_jsonl",
        "JsonlOptions",
        "JsonlExampleGen",
        suffixes=(".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson"),
        sampled="open_sampled_jsonl",
    ),
    "parquet": Format("parquet", "open_parquet", "ParquetOptions", "ParquetExampleGen", suffixes=(".parquet",)),
    "avro": Format("avro", "open_avro", component="AvroExampleGen", suffixes=(".avro",)),
    "tfrecord": Format(
        "tfrecord", "open_tfrecords", component="TFRecordExampleGen", suffixes=_TFRECORDS, sampled="open_cut_tfrecords"
    ),
    "images": Format(
        "images.reader",
        "open_images",
        "ImageOptions",
        "ImageExampleGen",
        suffixes=(".png", ".jpg", ".jpeg"),
        folders="images.reader",
    ),
    "text": Format("folders", "open_text", "TextOptions", "TextExampleGen", suffixes=(".txt",), folders="folders"),
    "binary": Format("folders", "open_binary", component="BinaryExampleGen", folders="folders"),
    "sql": Format("sql.reader", "open_sql", "SqlOptions", "SqlExampleGen", is_query=True),
    "bigquery": Format("bigquery", "open_bigquery", "BigQueryOptions", "BigQueryExampleGen", is_query=True),
}
_DEPTH = 3  # folders below that are looked into


class UnknownFormatError(InfeedError):
    """No file's name shows a format."""


def open_source(
    source: str,
    kind: str,
    options: IngestOptions,
    settings: Mapping[str, Any],
    where: str = "",
    *,
    sampled: bool = False,
) -> OpenedSource:
    """Opens a folder, a file or a pattern with wildcards, or asks a database.

    Args:
      where: as in `options_of`.
      sampled: the types may be those of a sample, which `settling.settled` checks; else they are of the whole input.

    Raises:
      InfeedError: an unknown format or setting, or whatever opening the source finds wrong.
    """
    if kind not in FORMATS:
        raise InfeedError(f"there is no format {kind!r}", where=source, do=f"use one of {', '.join(FORMATS)}")
    found = FORMATS[kind]
    root, pattern = ("", source) if found.is_query else _locate(source, kind)
    given = {**default_settings(source, kind), **settings}
    return open_patterns(kind, root, {None: pattern}, options, given, where, sampled=sampled)


def open_patterns(
    kind: str,
    root: str,
    patterns: Patterns,
    options: IngestOptions,
    settings: Mapping[str, Any],
    where: str = "",
    *,
    sampled: bool = False,
) -> OpenedSource:
    """Opens the files below `root` that the patterns find; of a database, what the queries in their place find.

    Args:
      where: as in `options_of`.
      sampled: as in `open_source`.

    Raises:
      InfeedError: an unknown setting, or whatever opening the source finds wrong.
    """
    found = FORMATS[kind]
    own = options_of(kind, settings, where)
    place = (patterns,) if found.is_query else (root, patterns)
    if not found.is_query:
        check_inside(root, patterns, allow_outside=options.allow_outside)
    set_aside, left_out = ([], ()) if found.is_query else check_irregular(root, patterns, options.on_bad_row)
    open_place = _member(found, (sampled and found.sampled) or found.open)
    opened: OpenedSource = open_place(*place, options, *([own] if own else []))
    asked = [pattern if found.is_query else files.join(root, pattern) for pattern in patterns.values()]

    def finish(one: OpenedSource) -> OpenedSource:
        return replace(with_tasks(retyped(one, options), set_aside, left_out), place=", ".join(asked))

    return reopenable(opened, finish)


def fingerprint_of(kind: str, queries: Patterns, settings: Mapping[str, Any]) -> str:
    """Another one once a database would answer the queries otherwise, as far as it is known without reading all."""
    fingerprint: str = _member(FORMATS[kind], "fingerprint")(queries, options_of(kind, settings))
    return fingerprint


def find_files(source: str, kind: str) -> list[files.FileStat]:
    """The files that `open_source` reads, sorted by path; none where there are none."""
    return files.glob(*_locate(source, kind))


def default_pattern(kind: str, folder: str) -> str:
    """The pattern that finds the files of a folder: all of them, or, where classes have folders, those within these."""
    found = FORMATS[kind]
    if not found.folders:
        return "*"
    pattern: str = import_module(f"{_SOURCES}.{found.folders}").default_pattern(folder)
    return pattern


def options_of(kind: str, settings: Mapping[str, Any], where: str = "") -> Any:
    """The format's own options, such as CsvOptions; None where it has none.

    Args:
      where: what the user wrote the settings in, `source_options` or `--set`; empty names the class.

    Raises:
      InfeedError: an unknown setting, or one of another type or out of range.
    """
    found = FORMATS[kind]
    if found.settings:
        try:
            return schema.read(_member(found, found.settings), settings, where or found.settings, exact=True)
        except InfeedError as error:
            json = '; --set takes JSON, such as header=false, names=["a", "b"] or size=[28, 28]'
            do = error.do if where == "source_options" else f"{error.do}{json}"
            raise InfeedError(error.what, where=error.where.replace("--set.", "--set "), do=do) from error
    if settings:
        raise InfeedError(f"no setting {min(settings)!r}", where=where or f"format {kind}", do="leave it out")
    return None


def _member(of: Format, name: str) -> Any:
    return getattr(import_module(f"{_SOURCES}.{of.module}"), name)


def default_settings(source: str, kind: str) -> dict[str, Any]:
    """What the names of files say of their settings: cells of a .tsv lie between tabs."""
    if kind != "csv":
        return {}
    names = [files.name(path).lower() for path in _names(source) if kind_of_name(path) == kind]
    return {"delimiter": "\t"} if names and all(name.endswith(_TAB_SEPARATED) for name in names) else {}


def guess_format(source: str) -> str:
    """The format that the names of files show.

    Raises:
      InfeedError: nothing there, nothing known, a format that is not read, or several formats in one folder.
    """
    shown = formats_shown(source)
    if not shown:
        if files.is_folder(source):
            check_irregular(source, {None: "*"}, "fail")
        raise UnknownFormatError(
            "cannot tell the format", where=source, do=f"name it, such as --format csv; there are {', '.join(FORMATS)}"
        )
    if set(shown) == {"csv", "images"} and is_list_of_images(source):
        return "images"
    if len(shown) > 1:
        found = ", ".join(f"{kind} ({files.name(path)})" for kind, path in shown.items())
        raise InfeedError(
            f"files of several formats: {found}",
            where=source,
            do=f"give a pattern that finds one of them, in quotes: '{_pattern_for(shown, source)}'",
        )
    (kind,) = shown
    if kind in NOT_READ:
        raise InfeedError(f"{kind} files are not read", where=shown[kind], do=NOT_READ[kind])
    return kind


def formats_shown(source: str) -> dict[str, str]:
    """Format, or suffix of one that is not read -> the first file whose name shows it.

    Raises:
      InfeedError: there is no such file or folder.
    """
    shown: dict[str, str] = {}
    for path in _names(source):
        if kind := kind_of_name(path):
            shown.setdefault(kind, path)
    return shown


def kind_of_name(path: str) -> str:
    """The format that a file's name shows, the suffix of one that is not read, or nothing."""
    name = _NUMBER_OF_SHARD.sub("", files.name(path)).lower()
    for kind, found in FORMATS.items():
        if found.suffixes and name.endswith(found.suffixes):
            return kind
    return next((suffix for suffix in NOT_READ if name.endswith(suffix)), "")


def is_list_of_images(source: str) -> bool:
    """Whether a CSV, or the one in a folder, names pictures and their labels."""
    from infeed.components.example_gen.sources.images.reader import default_pattern, is_manifest

    if files.is_folder(source):
        return default_pattern(source).endswith(".csv")
    return source.endswith(".csv") and files.exists(source) and is_manifest(source)


def is_pattern(source: str) -> bool:
    """Whether a path has wildcards, and is not the name of something that holds such signs."""
    return bool(_WILDCARDS & set(source)) and not files.exists(source)


def _pattern_for(shown: Mapping[str, str], source: str) -> str:
    """What finds the files of the first format that is read."""
    kind = next((kind for kind in shown if kind in FORMATS), next(iter(shown)))
    name = _NUMBER_OF_SHARD.sub("*", files.name(shown[kind]))
    depth = files.relative(shown[kind], source).count("/")
    return files.join(source, *["*"] * depth, f"*{name[name.rindex('.') :]}")


def _names(source: str) -> list[str]:
    if is_pattern(source):
        return [file.path for file in files.glob(*_cut(source))] or [source]
    if files.is_folder(source):
        below = (file.path for file in files.list_files(source, depth=_DEPTH))
        visible = [path for path in below if not any(map(files.is_hidden, files.relative(path, source).split("/")))]
        return sorted(visible, key=lambda path: path.count("/"))  # what lies higher shows it first
    if not files.exists(source):
        raise InfeedError("no such file or folder", where=source, do="check the path")
    return [source]


def _locate(source: str, kind: str) -> tuple[str, str]:
    """(folder, pattern of the files below it)"""
    if not files.is_folder(source):
        return _cut(source)
    pattern = default_pattern(kind, source)
    _check_depth(source, pattern)
    return source, pattern


def _cut(source: str) -> tuple[str, str]:
    """(folder, what follows it): the pattern from the first part that has wildcards, or else the name of the file."""
    parts = source.split("/")
    wild = (number for number, _ in enumerate(parts) if is_pattern("/".join(parts[: number + 1])))
    cut = next(wild, len(parts) - 1)
    return "/".join(parts[:cut]) or ("/" if source.startswith("/") else "."), "/".join(parts[cut:])


def _check_depth(folder: str, pattern: str) -> None:
    """Raises InfeedError where the files of a folder lie deeper than the pattern looks."""
    if files.glob(folder, pattern) or not (names := _names(folder)):
        return
    inside = files.relative(names[-1], folder)
    deeper = "/".join("*" for _ in inside.split("/"))
    raise InfeedError(
        f"the files lie deeper: {inside}",
        where=folder,
        do=f"give a pattern in quotes: '{files.join(folder, deeper)}', or one of the folders in it",
    )
