"""The real data that scikit-learn carries, written once in the form a user's own data would have."""

from __future__ import annotations

import csv
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

DIGITS = "bundled:digits"
BREAST_CANCER = "bundled:breast_cancer"

# One value in fifty is left empty, so that the pipeline meets what real tables are like.
_EMPTY_SHARE = 1 / 50


def materialise(name: str, folder: Path) -> Path:
    """Writes the bundled data set below `folder` unless it is there, and returns where; `name` is one of `NAMES`."""
    return _WRITERS[name](folder)


def write_digits(folder: Path) -> Path:
    """1,797 scanned digits of 8 x 8 grey pixels as PNG files, one folder a class: `digits/7/0042.png`."""
    target = folder / "digits"
    if target.is_dir():
        return target
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    unfinished = _fresh(folder / f"digits.{os.getpid()}.tmp")
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = unfinished / str(label) / f"{number:04}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray((pixels * 255 / 16).round().astype("uint8")).save(path)  # scanned with 17 grey levels, 0 to 16
    unfinished.rename(target)
    return target


def write_breast_cancer(folder: Path) -> Path:
    """569 tumours with 30 measurements and a `diagnosis`, as CSV; some measurements are left empty."""
    target = folder / "breast_cancer.csv"
    if target.is_file():
        return target
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"breast_cancer.csv.{os.getpid()}.tmp"
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(name.replace(" ", "_") for name in data.feature_names), "diagnosis"])
        for row, label in zip(data.data, data.target, strict=True):
            cells = ["" if draw.random() < _EMPTY_SHARE else repr(float(value)) for value in row]
            writer.writerow([*cells, data.target_names[label]])
    unfinished.rename(target)
    return target


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


_WRITERS: dict[str, Callable[[Path], Path]] = {DIGITS: write_digits, BREAST_CANCER: write_breast_cancer}
NAMES = tuple(_WRITERS)
