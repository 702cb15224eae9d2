"""Pictures of a dataset, side by side in one PNG, each with its label."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from infeed.components.dataset.decode import Example

_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")  # PNG, JPEG
_CELL, _GAP, _CAPTION = 112, 8, 16  # pixels
_LABELS = ("label/text", "label")


def picture_of(example: Example) -> Image.Image | None:
    """The first feature that holds a PNG or JPEG, decoded; None where there is none."""
    for feature in example.features.values():
        for value in feature.values:
            if isinstance(value, bytes) and value.startswith(_MAGIC):
                return Image.open(io.BytesIO(value))
    return None


def draw_sheet(examples: Sequence[Example], path: str, columns: int = 8) -> int:
    """Writes the pictures among the examples to a PNG, unless there are none; returns how many there are."""
    found = [(picture, _label(example)) for example in examples if (picture := picture_of(example))]
    if not found:
        return 0
    columns = min(columns, len(found))
    rows = math.ceil(len(found) / columns)
    size = (columns * (_CELL + _GAP) + _GAP, rows * (_CELL + _CAPTION + _GAP) + _GAP)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for number, (picture, label) in enumerate(found):
        left = _GAP + number % columns * (_CELL + _GAP)
        top = _GAP + number // columns * (_CELL + _CAPTION + _GAP)
        fitted = _fit(picture)
        sheet.paste(fitted, (left + (_CELL - fitted.width) // 2, top + (_CELL - fitted.height) // 2))
        draw.text((left, top + _CELL + 2), label, fill="black")
    sheet.save(path, "PNG")
    return len(found)


def _fit(picture: Image.Image) -> Image.Image:
    """As large as a cell lets it be; small ones are enlarged with hard edges, so that pixels can be seen."""
    scale = _CELL / max(picture.size)
    size = tuple(max(1, round(side * scale)) for side in picture.size)
    resampling = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
    return picture.convert("RGB").resize((size[0], size[1]), resampling)


def _label(example: Example) -> str:
    for name in _LABELS:
        if name in example.features and example.features[name].values:
            value = example.features[name].values[0]
            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            return text[: _CELL // 6]
    return ""
