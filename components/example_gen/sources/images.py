"""Images -> record batches that keep each file's own bytes, or hold its pixels.

Three layouts: a folder of class folders (`ROOT/cat/1.png`), a CSV with the columns `path` and `label`, whose paths are
relative to it, or a flat folder without classes. A class's number is its place among all class names, sorted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRow, BadRows
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import folders
from infeed.components.example_gen.sources.folders import Classes, FileRef
from infeed.components.example_gen.sources.image_codec import Header as Header
from infeed.components.example_gen.sources.image_codec import ImageOptions as ImageOptions
from infeed.components.example_gen.sources.image_codec import check_whole, header_of, rewrite
from infeed.components.example_gen.sources.image_codec import read_header as read_header

_MANIFEST_COLUMNS = ("path", "label")
_LAYOUTS = "give a folder with one folder of PNG or JPEG files per class, or a CSV with the columns path and label"


@dataclass(frozen=True)
class ImageIndex:
    """The images found, in order, and the class names, sorted."""

    root: str
    classes: tuple[str, ...]
    images: tuple[FileRef, ...]


@dataclass(frozen=True)
class _Format:
    """What reading needs to know."""

    classes: Classes
    options: ImageOptions
    block_bytes: int

    @property
    def schema(self) -> pa.Schema:
        content = [("image/raw", pa.large_binary())]
        if self.options.pixels == "encoded":
            content = [("image/encoded", pa.large_binary()), ("image/format", pa.string())]
        sizes = [(f"image/{name}", pa.int64()) for name in ("height", "width", "channels")]
        return pa.schema([*content, ("image/filename", pa.string()), *sizes, *self.classes.fields])


def open_images(
    root: str, patterns: inputs.Patterns, options: IngestOptions, image_options: ImageOptions | None = None
) -> Input:
    """Images in class folders, named by a CSV, or in a flat folder; classes are numbered over all splits."""
    found = inputs.find(root, patterns)
    refs = {split: _refs(root, patterns[split], matched) for split, matched in found.items()}
    form = _Format(Classes.of(folders.all_refs(refs)), image_options or ImageOptions(), options.block_bytes)
    tasks = inputs.as_tasks(
        (split, block) for split, some in refs.items() for block in folders.plan_blocks(some, options.block_bytes)
    )
    return Input(Source.of("image", root, inputs.all_files(found)), form.schema, tasks, partial(read, form=form))


def read(refs: Iterable[FileRef], form: _Format, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """One row an image, in batches of about `block_bytes`; a file that is no whole PNG or JPEG is reported."""
    rows, size = list[tuple[FileRef, bytes, Header]](), 0
    load = _load if form.options.keeps_bytes else partial(_load_anew, options=form.options)
    for ref in refs:
        try:
            content, header = load(ref.path)
        except InfeedError as error:
            bad_rows.report(BadRow(ref.path, None, None, error.what, ""))
            continue
        if rows and size + len(content) > form.block_bytes:
            yield _batch(rows, form)
            rows, size = [], 0
        rows.append((ref, content, header))
        size += len(content)
    yield _batch(rows, form)


def find_images(root: str) -> ImageIndex:
    """Every image below a folder of class folders, or named by a CSV (its own path, or the folder that holds it).

    Raises:
      InfeedError: no images found, an empty class folder, a CSV that names a file that is not there.
    """
    if files.exists(root) and not files.is_folder(root):
        folder, pattern = root.rpartition("/")[0] or ".", files.name(root)
    else:
        folder, pattern = root, _manifest_in(root) or folders.CLASS_FOLDERS
    if pattern == folders.CLASS_FOLDERS:
        _check_class_folders(folder)
    refs = _refs(folder, pattern, files.glob(folder, pattern))
    return ImageIndex(folder, Classes.of(refs).names, tuple(refs))


def default_pattern(root: str) -> str:
    """The pattern that finds a folder's images: the name of the one CSV of paths and labels in it, `*/*` or `*`."""
    return _manifest_in(root) or folders.default_pattern(root)


def fingerprint_of_named(root: str, patterns: Iterable[str]) -> str | None:
    """Changes when an image that a CSV names does; None where no CSV of the patterns names any."""
    named = [
        files.stat(ref.path)
        for pattern in patterns
        if pattern.endswith(".csv")
        for file in files.glob(root, pattern)
        for ref in _refs_of_manifest(root, file.path)
    ]
    return Source.of("image", root, named).fingerprint if named else None


def _load(path: str) -> tuple[bytes, Header]:
    data = files.read_bytes(path)
    header = header_of(data, path)
    check_whole(data, header, path)
    return data, header


def _load_anew(path: str, options: ImageOptions) -> tuple[bytes, Header]:
    return rewrite(files.read_bytes(path), path, options)


def _batch(rows: Sequence[tuple[FileRef, bytes, Header]], form: _Format) -> pa.RecordBatch:
    contents = [content for _, content, _ in rows]
    columns = {
        "image/encoded": contents,
        "image/raw": contents,
        "image/format": [header.format for _, _, header in rows],
        "image/filename": [ref.filename for ref, _, _ in rows],
        "image/height": [header.height for _, _, header in rows],
        "image/width": [header.width for _, _, header in rows],
        "image/channels": [header.channels for _, _, header in rows],
        **form.classes.columns([ref.text for ref, _, _ in rows]),
    }
    schema = form.schema
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _refs(root: str, pattern: str, found: Iterable[files.FileStat]) -> list[FileRef]:
    """The images among files found: a CSV stands for the images it names."""
    found = list(found)
    refs = folders.refs_of(root, pattern, [file for file in found if not file.path.endswith(".csv")])
    refs += [ref for file in found if file.path.endswith(".csv") for ref in _refs_of_manifest(root, file.path)]
    if not refs:
        raise InfeedError("no images found", where=f"{root}, which holds {_contents(root)}", do=_LAYOUTS)
    return refs


def _refs_of_manifest(root: str, manifest: str) -> Iterator[FileRef]:
    text = io.StringIO(files.read_bytes(manifest).decode("utf-8-sig"), newline="")
    reader = csv.DictReader(text)
    missing = [name for name in _MANIFEST_COLUMNS if name not in (reader.fieldnames or [])]
    if missing:
        raise InfeedError(f"no column {missing[0]!r}", where=f"{manifest}, line 1", do=_LAYOUTS)
    for row in reader:
        path = files.join(manifest.rpartition("/")[0], row["path"] or "")
        where = f"{manifest}, line {reader.line_num}"
        if not row["label"]:
            raise InfeedError(f"no label for {row['path']!r}", where=where, do="give every image a label")
        try:
            size = files.stat(path).size
        except FileNotFoundError:
            raise InfeedError(
                f"no file {row['path']!r}", where=where, do="give paths relative to the CSV's own folder"
            ) from None
        yield FileRef(root, files.relative(path, root), size, row["label"])


def _manifest_in(root: str) -> str | None:
    """The name of the one CSV of paths and labels in a folder; None where there is none, or more than one."""
    manifests = [files.name(file.path) for file in files.glob(root, "*.csv") if _is_manifest(file.path)]
    return manifests[0] if len(manifests) == 1 else None


def _is_manifest(path: str) -> bool:
    with files.open_input(path) as file:
        first = file.read(1 << 16).decode("utf-8-sig", errors="replace").partition("\n")[0]
    return set(_MANIFEST_COLUMNS) <= set(next(csv.reader([first]), []))


def _check_class_folders(root: str) -> None:
    names = [folder for folder in files.list_folders(root) if not files.is_hidden(folder)]
    for folder in names:
        path = files.join(root, folder)
        if not any(not files.is_hidden(file.path) for file in files.list_files(path)):
            raise InfeedError(
                f"class folder {folder!r} is empty", where=f"{path}, which holds {_contents(path)}", do=_LAYOUTS
            )


def _contents(folder: str) -> str:
    inside = [f"{name}/" for name in files.list_folders(folder)]
    found = inside + [files.name(file.path) for file in files.list_files(folder)]
    if not found:
        return "nothing" if files.exists(folder) else "nothing: it does not exist"
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
