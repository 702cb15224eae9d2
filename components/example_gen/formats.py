"""The table of formats. Executors and the command line open their input through this module."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import like, told_apart
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import OpenedSource, Patterns, is_companion
from infeed.components.example_gen.sources.file_kinds import BY_LIBRARY, TO_PARQUET, UNPACK, check_no_table, kind_of
from infeed.components.example_gen.sources.tfrecord import with_values

_SOURCES = "infeed.components.example_gen.sources"
_TAB_SEPARATED = (".tsv", ".tsv.gz", ".tsv.zst", ".tab")
_CSV = (".csv", ".csv.gz", ".csv.zst", *_TAB_SEPARATED)
_JSONL = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
_IMAGES = (".png", ".jpg", ".jpeg")
_TFRECORDS = tuple(f"{name}{zipped}" for name in (".tfrecord", ".tfrecords", "_tfrecord") for zipped in ("", ".gz"))
_NUMBER_OF_SHARD = re.compile(r"-\d+-of-\d+")  # TFDS and TFX put it before or after the suffix

PICTURES = (".bmp", ".gif", ".webp", ".tif", ".tiff", ".heic", ".avif")
NOT_READ = {  # suffixes of known formats that are not supported, with the remedy
    ".json": "if it holds one object a line, name it .jsonl, or use infeed ingest --format jsonl. Otherwise write a "
    "line for each object, for example with jq -c '.[]'",
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".orc", ".pkl"), TO_PARQUET),
    **dict.fromkeys((".mat", ".dta", ".sav", ".sas7bdat", ".rds", ".rdata"), TO_PARQUET),
    **dict.fromkeys((".h5", ".hdf5", ".npy", ".npz", ".tar"), BY_LIBRARY),
    **dict.fromkeys((".zip", ".tar.gz", ".tgz", ".bz2", ".xz", ".7z", ".rar"), UNPACK),
    **dict.fromkeys(PICTURES, "convert the images to PNG or JPEG"),
}


@dataclass(frozen=True)
class Format:
    """A source format. Its module is imported when a source is opened."""

    module: str  # in `sources`
    # Name of a function `(root, patterns, options[, settings])`, or for a database `(queries, options, settings)`,
    # beside a function `fingerprint(queries, settings)`.
    open: str
    settings: str = ""  # class of the format's options in the module. Empty if the format has none
    component: str = "FileExampleGen"  # name of its ExampleGen in `infeed.components`
    suffixes: tuple[str, ...] = ()  # file name suffixes that identify the format
    folders: str = ""  # module whose `default_pattern` finds the files in a folder that may have class folders
    is_query: bool = False  # whether the source is a query or a table rather than a path
    in_projects: bool = True  # whether `infeed run` learns from its columns
    sampled: str = ""  # like `open`, but infers types from a sample that the tasks verify. Empty if the format has none


FORMATS = {
    "csv": Format("csv_files", "open_csv", "CsvOptions", "CsvExampleGen", suffixes=_CSV, sampled="open_sampled_csv"),
    "jsonl": Format(
        "jsonl", "open_jsonl", "JsonlOptions", "JsonlExampleGen", suffixes=_JSONL, sampled="open_sampled_jsonl"
    ),
    "parquet": Format("parquet", "open_parquet", "ParquetOptions", "ParquetExampleGen", suffixes=(".parquet",)),
    "arrow": Format("arrow", "open_arrow", "ArrowOptions", "ArrowExampleGen", suffixes=(".arrow", ".feather", ".ipc")),
    "avro": Format("avro", "open_avro", component="AvroExampleGen", suffixes=(".avro",)),
    "tfrecord": Format(
        "tfrecord", "open_tfrecords", component="TFRecordExampleGen", suffixes=_TFRECORDS, sampled="open_cut_tfrecords"
    ),
    "images": Format(
        "image_files", "open_images", "ImageOptions", "ImageExampleGen", suffixes=_IMAGES, folders="image_files"
    ),
    "text": Format(
        "folders",
        "open_text",
        "TextOptions",
        "TextExampleGen",
        suffixes=(".txt",),
        folders="folders",
        in_projects=False,
    ),
    "binary": Format("folders", "open_binary", component="BinaryExampleGen", folders="folders", in_projects=False),
    "sql": Format("sql_reader", "open_sql", "SqlOptions", "SqlExampleGen", is_query=True, in_projects=False),
    "reader": Format("reader", "open_reader", "ReaderOptions", "ArrowExampleGen", is_query=True),
    "bigquery": Format(
        "bigquery", "open_bigquery", "BigQueryOptions", "BigQueryExampleGen", is_query=True, in_projects=False
    ),
}
_DEPTH = 3  # levels of subfolders that format detection searches


class UnknownFormatError(InfeedError):
    """No file name identifies a format."""


def open_source(
    source: str,
    kind: str,
    options: IngestOptions,
    settings: Mapping[str, Any],
    where: str = "",
    *,
    sampled: bool = False,
    every: bool = False,
) -> OpenedSource:
    """Open a folder, a file, a glob pattern, or a database query.

    With `sampled`, types may be inferred from a sample, which `planning.settled` verifies. Otherwise the whole input is
    read. For `where` see `options_of`, and for `every` see `with_values`.

    Raises:
      InfeedError: the format or a setting is unknown, or the source cannot be opened.
    """
    if kind not in FORMATS:
        raise InfeedError(f"format is {kind!r}, which is unknown", where=source, do=f"use one of {', '.join(FORMATS)}")
    found = FORMATS[kind]
    root, pattern = ("", source) if found.is_query else _locate(source, kind)
    given = {**default_settings(source, kind), **settings}
    return open_patterns(kind, root, {None: pattern}, options, given, where, sampled=sampled, every=every)


def open_patterns(
    kind: str,
    root: str,
    patterns: Patterns,
    options: IngestOptions,
    settings: Mapping[str, Any],
    where: str = "",
    *,
    sampled: bool = False,
    partition_feature: str | None = None,
    every: bool = False,
) -> OpenedSource:
    """Open the files below `root` that match the patterns, or the queries of a database, like `open_source`."""
    found = FORMATS[kind]
    own = options_of(kind, settings, where)
    place = (patterns,) if found.is_query else (root, patterns)
    if not found.is_query:
        inputs.log_links(root, patterns)
    set_aside, left_out = ([], ()) if found.is_query else inputs.check_irregular(root, patterns, options.on_bad_row)
    open_place = _member(found, (sampled and found.sampled) or found.open)
    opened: OpenedSource = open_place(*place, options, *([own] if own else []))
    asked = [pattern if found.is_query else files.join(root, pattern) for pattern in patterns.values()]

    # A source that is reopened with other types needs the same columns, notes and tasks again.
    def finish(one: OpenedSource) -> OpenedSource:
        valued = with_values(replace(one, place=", ".join(asked)), options, partition_feature, every=every)
        notes = (*left_out, *_alike(valued.schema.names))
        return inputs.with_tasks(inputs.retyped(valued, options), set_aside, notes)

    return inputs.reopenable(opened, finish)


def open_data(data: Any, options: IngestOptions, settings: Mapping[str, Any], where: str = "") -> OpenedSource:
    """Open data of this process, such as a data frame, with the settings of the format `reader`; see `open_source`."""
    own = options_of("reader", settings, where)
    opened: OpenedSource = _member(FORMATS["reader"], "open_given")(data, options, own)
    return inputs.with_tasks(inputs.retyped(opened, options), [], (*_alike(opened.schema.names),))


def _alike(columns: Sequence[str]) -> Iterator[str]:
    """Yield a note about each group of columns whose names people may take for one."""
    groups: dict[str, list[str]] = {}
    for name in columns:
        groups.setdefault(like(name), []).append(name)
    for names in groups.values():
        if len(names) > 1:
            how = "case" if len({name.casefold() for name in names}) == 1 else "case, outer spaces or forms of Unicode"
            shown = " and ".join(told_apart(names))
            yield f"columns {shown} differ only in {how}. If they are one column, use one name in all files"


def fingerprint_of(kind: str, queries: Patterns, settings: Mapping[str, Any]) -> str:
    """Return a fingerprint that changes with the results of queries, as far as possible without reading all."""
    fingerprint: str = _member(FORMATS[kind], "fingerprint")(queries, options_of(kind, settings))
    return fingerprint


def find_files(source: str, kind: str) -> list[files.FileStat]:
    """Return the files that `open_source` reads, sorted by path."""
    return files.glob(*_locate(source, kind))


def default_pattern(kind: str, folder: str) -> str:
    """Return the pattern that matches the files of a folder, or of its class folders."""
    found = FORMATS[kind]
    if not found.folders:
        return "*"
    pattern: str = import_module(f"{_SOURCES}.{found.folders}").default_pattern(folder)
    return pattern


def options_of(kind: str, settings: Mapping[str, Any], where: str = "") -> Any:
    """Return the options of a format, such as CsvOptions, or None if the format has none.

    `where` is where the user wrote the settings, `source_options` or `--set`. Empty for the class name.

    Raises:
      InfeedError: a setting is unknown, has the wrong type, or is out of range.
    """
    found = FORMATS[kind]
    if found.settings:
        try:
            return schema.read(_member(found, found.settings), settings, where or found.settings, exact=True)
        except InfeedError as error:
            json = '. --set accepts JSON, such as header=false, names=["a", "b"] or size=[28, 28]'
            do = error.do if where == "source_options" else f"{error.do}{json}"
            raise InfeedError(error.what, where=error.where.replace("--set.", "--set "), do=do) from error
    if settings:
        raise InfeedError(f"there is no setting {min(settings)!r}", where=where or f"format {kind}", do="leave it out")
    return None


def has_option(kind: str, option: str) -> bool:
    """Return whether a format has an option of this name."""
    found = FORMATS[kind]
    return bool(found.settings) and option in {field.name for field in fields(_member(found, found.settings))}


def _member(of: Format, name: str) -> Any:
    return getattr(import_module(f"{_SOURCES}.{of.module}"), name)


def default_settings(source: str, kind: str) -> dict[str, Any]:
    """Return the settings that file names imply, such as tab as the delimiter of .tsv files."""
    if kind != "csv":
        return {}
    names = [files.name(path).lower() for path in _visible_files(source) if kind_of_name(path) == kind]
    return {"delimiter": "\t"} if names and all(name.endswith(_TAB_SEPARATED) for name in names) else {}


def guess_format(source: str) -> str:
    """Infer the format from the names of the files. Raises InfeedError unless they show one supported format."""
    check_no_table(source)
    shown = formats_shown(source)
    if not shown:
        if files.is_folder(source):
            inputs.check_irregular(source, {None: "*"}, "fail")
        elif files.exists(source) and (known := kind_of(source)):
            raise UnknownFormatError(f"this is {known.name}", where=source, do=known.remedy(source))
        raise UnknownFormatError(
            "the format is unknown",
            where=source,
            do=f"set the format, for example --format csv, to one of {', '.join(FORMATS)}",
        )
    if set(shown) == {"csv", "images"} and is_list_of_images(source):
        return "images"  # the CSV holds their labels
    if len(shown) > 1:
        found = ", ".join(f"{kind} ({files.name(path)})" for kind, path in shown.items())
        path = next((path for kind, path in shown.items() if kind in FORMATS), next(iter(shown.values())))
        name, depth = _NUMBER_OF_SHARD.sub("*", files.name(path)), files.relative(path, source).count("/")
        pattern = files.join(source, *["*"] * depth, f"*{name[name.rindex('.') :]}")
        do = f"give a pattern that matches one format, in quotes: '{pattern}'"
        raise InfeedError(f"files of several formats: {found}", where=source, do=do)
    (kind,) = shown
    if kind in NOT_READ:
        raise InfeedError(f"{kind} files are not supported", where=shown[kind], do=NOT_READ[kind])
    return kind


def formats_shown(source: str) -> dict[str, str]:
    """Map each format, or unsupported suffix, to its first file. Raises InfeedError if the source does not exist."""
    shown: dict[str, str] = {}
    for path in _visible_files(source):
        if (kind := kind_of_name(path)) and not is_companion(path):
            shown.setdefault(kind, path)
    return shown


def no_dataset(path: str) -> InfeedError:
    """Return the error of a command that reads datasets, for a path that is none."""
    shown = [kind for kind in formats_shown(path) if kind in FORMATS]
    if shown and shown != ["tfrecord"]:
        do = f"create one first: infeed ingest {shlex.quote(path)} OUTPUT"
        return InfeedError(f"not a dataset, but {' and '.join(shown)}", where=path, do=do)
    do = "use a folder that contains Split-train and similar, TFRecord files, or an output of `infeed ingest`"
    return InfeedError("not a TFRecord dataset", where=path, do=do)


def kind_of_name(path: str) -> str:
    """Return the format of a file by its name, the suffix of an unsupported format, or ""."""
    name = _NUMBER_OF_SHARD.sub("", files.name(path)).lower()
    for kind, found in FORMATS.items():
        if found.suffixes and name.endswith(found.suffixes):
            return kind
    return next((suffix for suffix in NOT_READ if name.endswith(suffix)), "")


def is_list_of_images(source: str) -> bool:
    """Return whether a CSV file, or the only CSV file of a folder, lists images with labels."""
    from infeed.components.example_gen.sources.image_files import default_pattern, is_manifest

    if files.is_folder(source):
        return default_pattern(source).endswith(".csv")
    return source.endswith(".csv") and files.exists(source) and is_manifest(source)


def is_pattern(source: str) -> bool:
    """Return whether a path is a glob pattern rather than the name of an existing file."""
    return bool(set("*?[{") & set(source)) and not files.exists(source)


def _visible_files(source: str) -> list[str]:
    if is_pattern(source):
        return [file.path for file in files.glob(*_split_pattern(source))] or [source]
    if files.is_folder(source):
        below = (file.path for file in files.list_files(source, depth=_DEPTH))
        visible = [path for path in below if not any(map(files.is_hidden, files.relative(path, source).split("/")))]
        return sorted(visible, key=lambda path: path.count("/"))  # files of higher folders determine the format first
    if not files.exists(source):
        is_function = re.fullmatch(r"[\w./-]+:[^\W\d]\w*", source)
        do = f"for a function, use infeed ingest --reader {source} OUTPUT" if is_function else "check the path"
        raise InfeedError("no such file or folder", where=source, do=do)
    return [source]


def _locate(source: str, kind: str) -> tuple[str, str]:
    """Return (folder, pattern of the files below it). Raises InfeedError if the files are in deeper folders."""
    if not files.is_folder(source):
        return _split_pattern(source)
    pattern = default_pattern(kind, source)
    names = [path for path in _visible_files(source) if not is_companion(path)]
    if names and all(is_companion(file.path) for file in files.glob(source, pattern)):
        inside = files.relative(names[-1], source)
        deeper = "/".join("*" for _ in inside.split("/"))
        do = f"give a pattern in quotes: '{files.join(source, deeper)}', or a subfolder"
        raise InfeedError(f"the files are in deeper folders, such as {inside}", where=source, do=do)
    return source, pattern


def _split_pattern(source: str) -> tuple[str, str]:
    """Split a path into (folder, rest). The rest starts at the first wildcard, or is the file name."""
    parts = source.split("/")
    wild = (number for number, _ in enumerate(parts) if is_pattern("/".join(parts[: number + 1])))
    cut = next(wild, len(parts) - 1)
    return "/".join(parts[:cut]) or ("/" if source.startswith("/") else "."), "/".join(parts[cut:])
