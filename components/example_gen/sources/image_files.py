"""Reader of images. It keeps the bytes of each file, or decodes and resizes the pixels.

Three layouts are supported: a folder of class folders (`ROOT/cat/1.png`), a CSV with the columns `path` and `label`,
whose paths are relative to it, and a flat folder without classes. The label of a class is its index in sorted order.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from infeed.components.base.errors import InfeedError, ReadFailedError
from infeed.components.dataset import files
from infeed.components.dataset.bounds import ALLOW, FolderBounds
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRow, BadRows, Batches, OpenedSource, Patterns
from infeed.components.example_gen.sources import folders, image_codec
from infeed.components.example_gen.sources.folders import Classes, FileBlock, FileRef
from infeed.components.example_gen.sources.image_codec import ImageHeader, ImageOptions

_CSV_COLUMNS = ("path", "label")
_SHOWN = 200  # characters of a path
_LAYOUTS = "use a folder with one folder of PNG or JPEG files per class, or a CSV with the columns path and label"


@dataclass(frozen=True)
class Found:
    """Images in order, the files that a CSV names, and the bad rows of a CSV."""

    images: tuple[FileRef, ...]
    named: tuple[FileStat, ...]
    bad_rows: tuple[BadRow, ...]


@dataclass(frozen=True)
class ListRules:
    """Rules for the rows of an image list in CSV."""

    bad_rows: BadRows  # collects the others
    bounds: FolderBounds
    unlabeled: bool = False  # images without a label, whose class is None


@dataclass(frozen=True)
class _ImageReading:
    classes: Classes
    options: ImageOptions
    ingest: IngestOptions

    @property
    def schema(self) -> pa.Schema:
        content = [("image/raw", pa.large_binary())]
        if self.options.pixels == "encoded":
            content = [("image/encoded", pa.large_binary()), ("image/format", pa.string())]
        sizes = [(f"image/{name}", pa.int64()) for name in ("height", "width", "channels")]
        return pa.schema([*content, ("image/filename", pa.string()), *sizes, *self.classes.fields])


def open_images(
    root: str, patterns: Patterns, options: IngestOptions, image_options: ImageOptions | None = None
) -> OpenedSource:
    """Open images in class folders, listed by a CSV, or in a flat folder. Labels are equal in all splits."""
    matched = inputs.find(root, patterns)
    bounds = FolderBounds(root, allow=options.allow_outside)
    found = {}
    for split, some in matched.items():
        bad_rows = BadRows(options.on_bad_row, options.bad_row_limit)
        found[split] = list_images(root, patterns[split], some, ListRules(bad_rows, bounds, bool(options.labeled)))
    classes = Classes.of(ref for one in found.values() for ref in one.images)
    form = _ImageReading(classes, image_options or ImageOptions(), options)
    tasks = inputs.as_tasks(
        (split, what)
        for split, one in found.items()
        for what in chain([one.bad_rows] if one.bad_rows else [], folders.plan_blocks(one.images, options.block_bytes))
    )
    named = [file for one in found.values() for file in one.named]
    source = Source.of("image", root, inputs.all_files(matched) + named)
    return OpenedSource(source, form.schema, tasks, partial(read, form=form))


def read(what: FileBlock | tuple[BadRow, ...], form: _ImageReading, *, bad_rows: BadRows) -> Batches:
    """Yield one row for each image, in batches of about `block_bytes`, and report invalid files."""
    if isinstance(what, tuple):
        for row in what:
            bad_rows.report(row)
        return
    rows, size = list[_Row](), 0
    for ref in folders.bounded(what, form.ingest.max_row_mb, bad_rows):
        try:
            data = folders.read_whole(ref.path)
            if form.options != ImageOptions():
                rows.append(_Row(ref, *image_codec.rewrite(data, ref.path, form.options, form.ingest.max_row_mb)))
            else:
                header = image_codec.header_of(data, ref.path)
                image_codec.check_size(header.height, header.width, header.channels, ref.path, form.ingest.max_row_mb)
                image_codec.check_whole(data, header, ref.path)
                rows.append(_Row(ref, data, header))
        except ReadFailedError:  # a failed read does not mean that the image is bad
            raise
        except InfeedError as error:
            bad_rows.report(BadRow(ref.path, None, None, error.what, "", error.do))
            continue
        size += len(rows[-1].content)
        if size >= form.ingest.block_bytes:  # before decoding the next image, to free memory
            yield _to_batch(rows, form)
            size = 0
    if rows:
        yield _to_batch(rows, form)


def find_images(
    root: str, bad_rows: BadRows | None = None, *, allow_outside: bool = False, unlabeled: bool = False
) -> Found:
    """Find every image in class folders or in a CSV, given the path of the CSV or its folder.

    Args:
      bad_rows: collects the bad rows of a CSV. By default the first is an error.
      allow_outside: whether a CSV may name images outside its folder.
      unlabeled: whether a CSV may name images without a label. By default their rows are bad rows.

    Raises:
      InfeedError: there are no images, a class folder is empty, or a CSV names a missing file or one outside its
        folder.
    """
    if files.exists(root) and not files.is_folder(root):
        folder, pattern = root.rpartition("/")[0] or ".", files.name(root)
    else:
        folder, pattern = root, _manifest_in(root) or folders.CLASS_FOLDERS
    if pattern == folders.CLASS_FOLDERS:
        for name in (one for one in files.list_folders(folder) if not files.is_hidden(one)):
            path = files.join(folder, name)
            if all(files.is_hidden(file.path) for file in files.list_files(path)):
                where = f"{path}, which holds {_contents(path)}"
                raise InfeedError(f"class folder {name!r} is empty", where=where, do=_LAYOUTS)
    rules = ListRules(bad_rows or BadRows(), FolderBounds(folder, allow=allow_outside), unlabeled)
    return list_images(folder, pattern, files.glob(folder, pattern), rules)


def default_pattern(root: str) -> str:
    """Return the pattern of a folder's images: the name of its only image CSV, `*/*`, or `*`."""
    return _manifest_in(root) or folders.default_pattern(root)


def is_manifest(path: str) -> bool:
    with files.open_input(path) as file:
        first = file.read(1 << 16).decode("utf-8-sig", errors="replace").partition("\n")[0]
    try:
        return set(_CSV_COLUMNS) <= set(next(csv.reader([first]), []))
    except csv.Error:
        return False


def fingerprint_of_named(root: str, patterns: Iterable[str]) -> str | None:
    """Return a fingerprint of the images that CSVs name. None if they name none."""
    rules = ListRules(BadRows("reject", sys.maxsize), FolderBounds(root, allow=True), unlabeled=True)
    named = [
        image
        for pattern in patterns
        if pattern.endswith(".csv")
        for file in files.glob(root, pattern)
        for image, _ in _named_by(file.path, rules)
    ]
    return Source.of("image", root, named).fingerprint if named else None


def list_images(root: str, pattern: str, found: Iterable[FileStat], rules: ListRules) -> Found:
    """Return the images among matched files, or named by CSVs. Raises InfeedError if there are none."""
    images, tables = list[FileStat](), list[FileStat]()
    for file in found:
        (tables if file.path.endswith(".csv") else images).append(file)
    named = [one for table in tables for one in _named_by(table.path, rules)]
    refs = folders.refs_of(root, pattern, images)
    refs += [FileRef(root, files.relative(file.path, root), file.size, label) for file, label in named]
    if not refs:
        raise InfeedError("no images found", where=f"{root}, which holds {_contents(root)}", do=_LAYOUTS)
    return Found(tuple(refs), tuple(file for file, _ in named), rules.bad_rows.take())


def _named_by(table: str, rules: ListRules) -> Iterator[tuple[FileStat, str | None]]:
    """Yield (image, label) of each row of a CSV, and report rows that are incomplete or name an invalid file."""
    try:
        text = files.read_bytes(table).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InfeedError(f"not UTF-8 text: {error.reason}", where=table, do="write the CSV as UTF-8") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from _images_of(reader, table, rules)
    except csv.Error as error:
        where = f"{table}, line {reader.line_num + 1}"
        do = "write the CSV again, with doubled quotes inside cells and without NUL characters"
        raise InfeedError(f"not CSV: {error}", where=where, do=do) from error


def _images_of(reader: csv.DictReader[str], table: str, rules: ListRules) -> Iterator[tuple[FileStat, str | None]]:
    missing = [name for name in _CSV_COLUMNS if name not in (reader.fieldnames or [])]
    if missing:
        raise InfeedError(f"there is no column {missing[0]!r}", where=f"{table}, line 1", do=_LAYOUTS)
    for row in reader:
        path, label = (row[name] or "" for name in _CSV_COLUMNS)
        try:
            image = files.stat(files.join(table.rpartition("/")[0], path))
        except ReadFailedError:
            raise
        except (OSError, ValueError, InfeedError) as error:  # for example a name that is too long or contains a NUL
            missing_file = isinstance(error, FileNotFoundError)
            reason = f"there is no file {path[:_SHOWN]!r}" + (" relative to the CSV" if missing_file else "")
            rules.bad_rows.report(BadRow(table, reader.line_num, "path", reason, f"{path},{label}"))
            continue
        if place := rules.bounds.outside(image.path):
            reason = f"{path[:_SHOWN]!r} is outside the data folder, at {place!r}. To trust it, {ALLOW}"
            rules.bad_rows.report(BadRow(table, reader.line_num, "path", reason, f"{path},{label}"))
        elif label or rules.unlabeled:
            yield image, label or None
        else:
            reason = f"there is no label for {path!r}"
            rules.bad_rows.report(BadRow(table, reader.line_num, "label", reason, f"{path},"))


def _manifest_in(root: str) -> str | None:
    """Return the name of the only image CSV in a folder. None if there is none or several."""
    manifests = [files.name(file.path) for file in files.glob(root, "*.csv") if is_manifest(file.path)]
    return manifests[0] if len(manifests) == 1 else None


def _contents(folder: str) -> str:
    inside = [f"{name}/" for name in files.list_folders(folder)]
    found = inside + [files.name(file.path) for file in files.list_files(folder)]
    if not found:
        return "nothing" if files.exists(folder) else "nothing: it does not exist"
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


class _Row(NamedTuple):
    file: FileRef
    content: bytes | bytearray
    header: ImageHeader


def _to_batch(rows: list[_Row], form: _ImageReading) -> pa.RecordBatch:
    """Convert the rows to a batch and clear the list."""
    columns = {
        "image/format": [row.header.format for row in rows],
        "image/filename": [row.file.filename for row in rows],
        "image/height": [row.header.height for row in rows],
        "image/width": [row.header.width for row in rows],
        "image/channels": [row.header.channels for row in rows],
        **form.classes.columns([row.file.text for row in rows]),
    }
    contents = folders.as_column([row.content for row in rows])
    rows.clear()
    arrays = [pa.array(columns[field.name], field.type) if field.name in columns else contents for field in form.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=form.schema)
