"""Access to the data of a project: format, rows of a table, layout of images, splits named by files, bundled data.

Tables are read as their ExampleGen reads them. Images are in class folders, or in split folders with class folders.
Errors explain how to arrange them.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import fnmatch
import importlib
import os
import random
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.bounds import FolderBounds
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import (
    FORMATS,
    PICTURES,
    UnknownFormatError,
    find_files,
    formats_shown,
    guess_format,
    is_list_of_images,
    is_pattern,
    kind_of_name,
    open_patterns,
    open_source,
)
from infeed.components.example_gen.inputs import BadRows, OpenedSource, reopenable
from infeed.components.example_gen.sources.folders import CLASS_FOLDERS
from infeed.components.example_gen.sources.image_files import ListRules, default_pattern, find_images, list_images
from infeed.components.example_gen.sources.tfrecord import without_records
from infeed.pipelines.config import EVAL, EXAMPLE_GENS, TEST, TRAIN, PipelineConfig, Source
from infeed.pipelines.surveys import Layout

_OTHER = {
    "images": "use the image template, as in `infeed run image --data FOLDER`, or source: images in the config",
    "table": "use the table template, as in `infeed run tabular --data FILE --label COLUMN`. For a column of images, "
    "declare decode_image in a config",
}

# Words in names of splits, likeliest first.
NAMES: Mapping[str, tuple[str, ...]] = {
    TRAIN: ("train", "training"),
    EVAL: ("val", "valid", "validation", "eval", "evaluation", "dev"),
    TEST: ("test", "testing"),
}
_DEPTH = 4
_DO = "create a folder for each class, as in {0}/cat/1.png and {0}/dog/2.png, or a CSV with the columns path and label"
# One value in fifty is left empty, as in real tables.
_EMPTY_SHARE = 1 / 50
_HEADING = re.compile(r"\n\s*[A-Z][A-Za-z ]+\n\s*-{3,}")  # heading in numpydoc style, such as Parameters
_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")  # end of a sentence


def source_of(data: str, source: Source) -> Source:
    """Return the format that the file names in `data` indicate, or else `source`.

    Raises InfeedError if there are images instead of a table or vice versa, several formats, or an unsupported format.
    """
    if not (is_pattern(data) or files.exists(data)):
        return source
    if source == "images":
        shown = formats_shown(data)
        tables = [kind for kind in shown if kind in EXAMPLE_GENS and kind != "images"]
        if tables and "images" not in shown and not is_list_of_images(data):
            what = f"this is a table ({tables[0]}), but the source is images"
            raise InfeedError(what, where=data, do=_OTHER["table"])
        return source
    try:
        kind = guess_format(data)
    except UnknownFormatError:
        return source
    if kind == "text":  # a .txt file may be a CSV
        if files.is_folder(data) and default_pattern(data) == CLASS_FOLDERS:
            ingest = f"infeed ingest {shlex.quote(data)} OUTPUT --format text --set unit=file"
            do = f"{ingest}, and then use --data OUTPUT --label label/text"
            raise InfeedError("the folders contain text files, not tables", where=data, do=do)
        return source
    if kind == "images":
        raise InfeedError("these are images, but the source is a table", where=data, do=_OTHER["images"])
    if kind not in EXAMPLE_GENS:
        do = f"infeed ingest {shlex.quote(data)} OUTPUT --format {kind}, and then use --data OUTPUT"
        raise InfeedError(f"a pipeline does not read the format {kind}", where=data, do=do)
    return kind


def is_picture(path: str) -> bool:
    """Return whether a file name is that of an image, including unsupported formats."""
    return path.lower().endswith((*FORMATS["images"].suffixes, *PICTURES))


def open_table(
    path: str,
    source: Source,
    settings: Mapping[str, Any],
    options: IngestOptions | None = None,
    *,
    sampled: bool = False,
) -> OpenedSource:
    """Open a file, or all files of a folder. For `sampled`, see `formats.open_source`.

    Raises InfeedError if there is no file, or a file has another format.
    """
    _check_there(path, source)
    opened = open_source(path, source, options or IngestOptions(), settings, "--set", sampled=sampled, every=True)
    return reopenable(opened, without_records)


def open_splits(
    path: str,
    source: Source,
    settings: Mapping[str, Any],
    options: IngestOptions,
    patterns: Mapping[str, str],
    *,
    sampled: bool = False,
) -> OpenedSource:
    """Open the files of splits like `open_table`. `patterns` maps splits to file patterns below `path`."""
    named = dict[str | None, str](patterns.items())
    opened = open_patterns(source, path, named, options, settings, "--set", sampled=sampled, every=True)
    return reopenable(opened, without_records)


def of_span(config: PipelineConfig, pattern: str) -> PipelineConfig:
    """Return the config for the files of the spans that match `pattern`."""
    return dataclasses.replace(
        config, data=files.join(config.data, pattern), ingest=dataclasses.replace(config.ingest, spans=None)
    )


def open_data(config: PipelineConfig, *, sampled: bool = False) -> OpenedSource:
    """Open the data of a config as its ExampleGen does; see `formats.open_source`."""
    how = config.ingest, config.source_options
    if config.patterns:
        patterns = {None if split in config.splits else split: path for split, path in config.patterns.items()}
        return open_patterns(config.source, config.data, patterns, *how, sampled=sampled)
    if config.source != "images":
        _check_there(config.data, config.source)
    return open_source(config.data, config.source, *how, "--set", sampled=sampled)


def files_of_table(path: str, source: Source) -> list[files.FileStat]:
    """Return the files that `open_table` reads, sorted by path. Raises InfeedError if there is no file."""
    _check_there(path, source)
    return [files.FileStat(path, 0, 0)] if FORMATS[source].is_query else find_files(path, source)


def _check_there(path: str, source: Source) -> None:
    if FORMATS[source].is_query:
        return
    there = is_pattern(path) or files.exists(path)
    if not there or (files.is_folder(path) and not find_files(path, source)):
        what = "there are no files to read" if there else "there is no such file or folder"
        do = f"use a file of the format {source}, or a folder of such files. For rows of a database or a function, use"
        raise InfeedError(what, where=path, do=f"{do} the output of infeed ingest")


def find_layout(root: str, options: IngestOptions | None = None) -> Layout:
    """Find the images of a folder or of a CSV. `options` determine the handling of CSV rows without image or label.

    Raises InfeedError if there are none, if they are not in class folders or too deep, and as `find_images` does.
    """
    options = options or IngestOptions()
    if files.exists(root) and not files.is_folder(root):
        if is_picture(root):
            do = "use the folder that contains the class folders"
            raise InfeedError("the data is a single image", where=root, do=do)
        return _listed(root, options)
    folders = _split_folders(root)
    if TRAIN not in folders:
        if not (default_pattern(root).endswith(".csv") or files.glob(root, CLASS_FOLDERS)):
            _check_depth(root)
        return _listed(root, options)
    splits = {split: f"{folder}/{CLASS_FOLDERS}" for split, folder in folders.items()}
    bounds = FolderBounds(root, allow=options.allow_outside)
    rules = ListRules(BadRows(), bounds)
    found = [list_images(root, pattern, files.glob(root, pattern), rules) for pattern in splits.values()]
    others = [name for name in files.list_folders(root) if name not in folders.values() and not files.is_hidden(name)]
    return Layout(tuple(ref for listed in found for ref in listed.images), splits, ", ".join(others))


def _listed(root: str, options: IngestOptions) -> Layout:
    """Find images in class folders or in a CSV, and collect all bad rows before raising an error."""
    rows = BadRows("reject", sys.maxsize)
    index = find_images(root, rows, allow_outside=options.allow_outside, unlabeled=bool(options.labeled))
    bad = [row for row in index.bad_rows if row.column == "label"]
    if bad and options.on_bad_row == "fail":
        what = f"{len(bad):,} of {len(index.images) + len(bad):,} images have no label"
        raise InfeedError(what, where=bad[0].where, do=set_aside(len(bad)))
    bad_rows = BadRows(options.on_bad_row, options.bad_row_limit)
    for row in index.bad_rows:
        bad_rows.report(row)
    labeled = tuple(image for image in index.images if image.text is not None)
    if not labeled:
        raise InfeedError("no image has a label", where=root, do="write the class of each image as its label")
    return Layout(labeled, {}, rejected=len(index.bad_rows), unlabeled=len(index.images) - len(labeled))


def set_aside(rows: int) -> str:
    """Return the remedy for bad rows without a label."""
    limit = f" --bad-row-limit {rows}" if rows > IngestOptions().bad_row_limit else ""
    in_config = "in a config, ingest: {on_bad_row: reject}"
    return f"set them aside in rejected.jsonl with --on-bad-row reject{limit} ({in_config})"


def _split_folders(root: str) -> dict[str, str]:
    """Map splits to folders that contain class folders. Empty if the folders are classes."""
    known = {name for names in NAMES.values() for name in names}
    flat = {files.relative(file.path, root).partition("/")[0].lower() for file in files.glob(root, CLASS_FOLDERS)}
    if flat - known or default_pattern(root).endswith(".csv"):
        return {}
    there = {name.lower(): name for name in files.list_folders(root) if files.glob(root, f"{name}/{CLASS_FOLDERS}")}
    named = {split: [there[name] for name in names if name in there] for split, names in NAMES.items()}
    return {split: found[0] for split, found in named.items() if found}


def _check_depth(root: str) -> None:
    """Raise InfeedError if there are images, but not one folder below the root."""
    below = [file.path for file in files.list_files(root, depth=_DEPTH) if is_picture(file.path)]
    if not below:
        return
    first = files.relative(below[0], root)
    if "/" in first:
        what = f"the images are deeper than one folder per class: {first}"
        raise InfeedError(what, where=root, do="use the folder that contains the class folders")
    what = f"the images have no classes: {first} is directly in the folder"
    raise InfeedError(what, where=root, do=_DO.format(root))


def find_split_files(folder: str, kind: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Find the splits that files and folders in `folder` name, such as `train.csv` and `test.csv`, or `val/`.

    A file or a pattern instead of a folder has no splits.

    Returns:
      The file pattern below the folder of each split, and the files and folders without a split. Both are empty unless
      train and another split are named.

    Raises:
      InfeedError: no pattern matches exactly the files of a split.
    """
    if not files.is_folder(folder):
        return {}, ()
    at_top = [files.name(file.path) for file in files.glob(folder, "*") if kind_of_name(file.path) == kind]
    inside = {name: _pattern_inside(folder, name, kind) for name in files.list_folders(folder)}
    folders = [name for name, pattern in inside.items() if pattern and not files.is_hidden(name)]
    found: dict[str, str] = {}
    taken: list[str] = []
    for split in NAMES:
        if names := _likeliest(at_top, split):
            found[split] = _pattern_of(names, at_top, folder)
        elif names := _likeliest(folders, split)[:1]:
            found[split] = inside[names[0]]
        taken += names
    if TRAIN not in found or len(found) == 1:
        return {}, ()
    return found, tuple(name for name in (*at_top, *folders) if name not in taken)


def split_of(name: str) -> tuple[str, str] | None:
    """Return (split, word) of a name that begins or ends with the word, for example `rides_test.csv`."""
    words = [word for word in re.findall("[a-z]+", name.lower().partition(".")[0]) if word not in ("of", "part")]
    for word in words[:1] + words[-1:]:
        for split, known in NAMES.items():
            if word in known:
                return split, word
    return None


def _likeliest(names: Sequence[str], split: str) -> list[str]:
    """Return the names of the split with the likeliest word."""
    said = {name: found[1] for name in names if (found := split_of(name)) and found[0] == split}
    word = next((word for word in NAMES[split] if word in said.values()), "")
    return [name for name, its in said.items() if its == word]


def _pattern_inside(folder: str, name: str, kind: str) -> str:
    """Return a pattern of the files of this format in a folder, without a README. Empty if there are none."""
    inside = [files.name(file.path) for file in files.glob(folder, f"{name}/*")]
    of_kind = [one for one in inside if kind_of_name(one) == kind]
    if not of_kind:
        return ""
    suffixes = {suffix for suffix in FORMATS[kind].suffixes if all(one.lower().endswith(suffix) for one in of_kind)}
    suffix = max(suffixes, key=len, default="")
    mixed = [one for one in inside if one.endswith(suffix)] != of_kind
    return f"{name}/*" if mixed else f"{name}/*{suffix}"


def _pattern_of(names: Sequence[str], every: Collection[str], folder: str) -> str:
    """Return the only name, or a pattern that matches exactly these names."""
    if len(names) == 1:
        return names[0]
    begin = re.split(r"[\W\d_]", names[0])[0]
    for pattern in (re.sub(r"\d+", "*", names[0]), f"{begin}*"):
        if set(fnmatch.filter(every, pattern)) == set(names):
            return pattern
    what = f"{names[0]} and {names[1]} belong to one split, but no pattern matches only the files of this split"
    do = "put the files of each split into a separate folder, for example train/ and test/"
    raise InfeedError(what, where=folder, do=do)


# Real data sets of scikit-learn and SciPy, written in the form of a user's data.


def write_digits(folder: Path) -> None:
    """Write 1,797 scanned digits of 8 x 8 gray pixels as PNG files, one folder per class: `7/0042.png`."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(label) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).round().astype("uint8")).save(path)  # scanned with 17 gray levels, 0 to 16


def write_breast_cancer(path: Path) -> None:
    """Write 569 tumors with 30 measurements and a `diagnosis` as CSV. Some measurements are empty."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    draw = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(name.replace(" ", "_") for name in data.feature_names), "diagnosis"])
        for row, label in zip(data.data, data.target, strict=True):
            cells = ["" if draw.random() < _EMPTY_SHARE else repr(float(value)) for value in row]
            writer.writerow([*cells, data.target_names[label]])


def write_scipy_sentences(path: Path) -> None:
    """Write about 3,500 sentences of SciPy's documentation (BSD-3-Clause), labeled by `part`, as CSV.

    They are the distinct sentences of docstrings up to the first heading. The installed sources are parsed, not
    imported.
    """
    (scipy,) = importlib.import_module("scipy").__path__
    found: dict[str, str] = {}
    for part in ("linalg", "optimize", "signal", "sparse", "stats"):
        for module in sorted(Path(scipy, part).rglob("*.py")):
            for sentence in _sentences(module) if "tests" not in module.parts else ():
                found.setdefault(sentence, part)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence", "part"), *found.items()])


def _sentences(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        text = _HEADING.split(ast.get_docstring(node) or "")[0]
        for paragraph in text.split("\n\n"):
            for sentence in _END.split(" ".join(paragraph.split())):
                if sentence.endswith(".") and 5 <= len(sentence.split()) <= 60:
                    yield sentence


BUNDLED: Mapping[str, tuple[str, Callable[[Path], None]]] = {
    "bundled:digits": ("digits", write_digits),
    "bundled:breast_cancer": ("breast_cancer.csv", write_breast_cancer),
    "bundled:scipy_sentences": ("scipy_sentences.csv", write_scipy_sentences),
}


def materialise(name: str, folder: Path) -> Path:
    """Write the bundled data set `name`, one of `BUNDLED`, below `folder` if missing. Return its path."""
    file, write = BUNDLED[name]
    target, unfinished = folder / file, folder / f"{file}.{os.getpid()}.tmp"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(unfinished)
        unfinished.rename(target)
    return target
