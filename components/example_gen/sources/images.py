"""Folders of images -> record batches that keep each file's own bytes.

Two layouts: a folder of class folders (`ROOT/cat/1.png`), or a CSV with the columns `path` and `label`, whose paths are
relative to it. A class's number is its place among all class names, sorted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import pyarrow as pa
from PIL import Image, UnidentifiedImageError

from infeed.components.dataset import files
from infeed.components.errors import InfeedError

CLASS_FOLDERS = "*/*"
FORMATS = {"PNG": "png", "JPEG": "jpeg"}
SCHEMA = pa.schema(
    [
        ("image/channels", pa.int64()),
        ("image/encoded", pa.large_binary()),
        ("image/filename", pa.string()),
        ("image/format", pa.string()),
        ("image/height", pa.int64()),
        ("image/width", pa.int64()),
        ("label", pa.int64()),
        ("label/text", pa.string()),
    ]
)
_MANIFEST_COLUMNS = ("path", "label")
_LAYOUTS = "give a folder with one folder of PNG or JPEG files per class, or a CSV with the columns path and label"
_CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 2, "PA": 4, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3}


@dataclass(frozen=True)
class ImageRef:
    """One image file: where it is, its name as it goes into the data, its size in bytes, its class."""

    path: str
    filename: str
    size: int
    text: str


@dataclass(frozen=True)
class ImageIndex:
    """The images found, in order, and the class names, sorted."""

    root: str
    classes: tuple[str, ...]
    images: tuple[ImageRef, ...]


@dataclass(frozen=True)
class Header:
    """What an image file says about itself; `channels` is what decoding it as it is gives."""

    format: str
    height: int
    width: int
    channels: int


def find_images(root: str) -> ImageIndex:
    """Every image below a folder of class folders, or named by a CSV (its own path, or the folder that holds it).

    Raises:
      InfeedError: no images found, an empty class folder, a CSV that names a file that is not there.
    """
    if files.exists(root) and not files.is_folder(root):
        folder, pattern = root.rpartition("/")[0] or ".", files.name(root)
    else:
        folder, pattern = root, image_pattern(root)
    if pattern == CLASS_FOLDERS:
        _check_class_folders(folder)
    return index_images(folder, files.glob(folder, pattern))


def image_pattern(root: str) -> str:
    """The pattern that finds a folder's images: `*/*`, or the name of the one CSV of paths and labels in it."""
    manifests = [file.path for file in files.glob(root, "*.csv") if _is_manifest(file.path)]
    return files.name(manifests[0]) if len(manifests) == 1 else CLASS_FOLDERS


def index_images(root: str, found: Sequence[files.FileStat]) -> ImageIndex:
    """The images among files found: a CSV stands for the images it names, any other file's folder is its class.

    Raises:
      InfeedError: no images, or a CSV without the columns or the files that it should have.
    """
    images = [image for file in found for image in _refs(root, file)]
    if not images:
        raise InfeedError("no images found", where=f"{root}, which holds {_contents(root)}", do=_LAYOUTS)
    return ImageIndex(root, tuple(sorted({image.text for image in images})), tuple(images))


def check_images(index: ImageIndex) -> None:
    """Reads every file's header.

    Raises:
      InfeedError: the first file that is not an image, or of a format that TensorFlow does not decode here.
    """
    for image in index.images:
        with files.open_input(image.path) as file:
            read_header(cast(BinaryIO, file), image.path)


def read_header(file: BinaryIO, path: str) -> Header:
    """Format and size from an image's header; nothing is decoded.

    Raises:
      InfeedError: not an image, or neither PNG nor JPEG.
    """
    try:
        with Image.open(file) as image:
            if image.format not in FORMATS:
                raise InfeedError(f"a {image.format} image", where=path, do="convert it to PNG or JPEG")
            return Header(FORMATS[image.format], image.height, image.width, _channels(image))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise InfeedError("not an image", where=path, do="remove it, or replace it by a PNG or JPEG") from error


def plan_blocks(images: Sequence[ImageRef], block_bytes: int) -> Iterator[tuple[ImageRef, ...]]:
    """Images in order, in groups of about `block_bytes`."""
    block: list[ImageRef] = []
    size = 0
    for image in images:
        if block and size + image.size > block_bytes:
            yield tuple(block)
            block, size = [], 0
        block.append(image)
        size += image.size
    if block:
        yield tuple(block)


def read_block(images: Sequence[ImageRef], classes: Sequence[str]) -> pa.RecordBatch:
    """One row per image, with the columns of `SCHEMA`.

    Raises:
      InfeedError: a file that is not an image, or neither PNG nor JPEG.
    """
    numbers = {text: number for number, text in enumerate(classes)}
    encoded = [files.read_bytes(image.path) for image in images]
    headers = [read_header(io.BytesIO(data), image.path) for data, image in zip(encoded, images, strict=True)]
    columns = {
        "image/channels": [header.channels for header in headers],
        "image/encoded": encoded,
        "image/filename": [image.filename for image in images],
        "image/format": [header.format for header in headers],
        "image/height": [header.height for header in headers],
        "image/width": [header.width for header in headers],
        "label": [numbers[image.text] for image in images],
        "label/text": [image.text for image in images],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def _refs(root: str, file: files.FileStat) -> Iterable[ImageRef]:
    if file.path.endswith(".csv"):
        return _refs_of_manifest(root, file.path)
    folder = files.name(file.path.rpartition("/")[0])
    return [ImageRef(file.path, files.relative(file.path, root), file.size, folder)]


def _refs_of_manifest(root: str, manifest: str) -> Iterator[ImageRef]:
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
        yield ImageRef(path, files.relative(path, root), size, row["label"])


def _is_manifest(path: str) -> bool:
    with files.open_input(path) as file:
        first = file.read(1 << 16).decode("utf-8-sig", errors="replace").partition("\n")[0]
    return set(_MANIFEST_COLUMNS) <= set(next(csv.reader([first]), []))


def _check_class_folders(root: str) -> None:
    folders = [folder for folder in files.list_folders(root) if not files.is_hidden(folder)]
    for folder in folders:
        path = files.join(root, folder)
        if not any(not files.is_hidden(file.path) for file in files.list_files(path)):
            raise InfeedError(
                f"class folder {folder!r} is empty", where=f"{path}, which holds {_contents(path)}", do=_LAYOUTS
            )


def _contents(folder: str) -> str:
    folders = [f"{name}/" for name in files.list_folders(folder)]
    found = folders + [files.name(file.path) for file in files.list_files(folder)]
    if not found:
        return "nothing" if files.exists(folder) else "nothing: it does not exist"
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def _channels(image: Image.Image) -> int:
    if image.mode == "P":
        return 4 if "transparency" in image.info else 3  # a palette is decoded to its colours
    return _CHANNELS.get(image.mode, len(image.getbands()))
