"""Contact sheet: one PNG with the images of a dataset and their labels."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw
from PIL.Image import Resampling

from infeed.components.dataset import files
from infeed.components.dataset.decode import Example
from infeed.components.example_gen.sources.image_codec import UNREADABLE

_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")  # PNG, JPEG
_CELL, _GAP, _CAPTION = 112, 8, 16  # pixels


def picture_of(example: Example) -> Image.Image | None:
    """Decode the first PNG or JPEG value of an example. Return None if there is none.

    If the value cannot be decoded, return a placeholder: an image whose `format` is None.
    """
    values = (value for feature in example.features.values() for value in feature.values)
    value = next((one for one in values if isinstance(one, bytes) and one.startswith(_MAGIC)), None)
    if value is None:
        return None
    try:
        picture = Image.open(io.BytesIO(value), formats=("PNG", "JPEG"))
        picture.load()
    except UNREADABLE:
        cell = Image.new("RGB", (_CELL, _CELL), "lightgrey")
        ImageDraw.Draw(cell).text((_CELL // 4, _CELL // 2), "unreadable", fill="black")
        return cell
    return picture


def draw_sheet(examples: Sequence[Example], path: str) -> int:
    """Draw the images of the examples into a PNG file, and return their number. Without images, write no file."""
    found = [(_fit(picture), _label(example)) for example in examples if (picture := picture_of(example))]
    if not found:
        return 0
    columns = min(8, len(found))
    rows = math.ceil(len(found) / columns)
    size = (columns * (_CELL + _GAP) + _GAP, rows * (_CELL + _CAPTION + _GAP) + _GAP)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for number, (fitted, label) in enumerate(found):
        left = _GAP + number % columns * (_CELL + _GAP)
        top = _GAP + number // columns * (_CELL + _CAPTION + _GAP)
        sheet.paste(fitted, (left + (_CELL - fitted.width) // 2, top + (_CELL - fitted.height) // 2))
        draw.text((left, top + _CELL + 2), label, fill="black")
    png = io.BytesIO()
    sheet.save(png, "PNG")
    files.write_bytes(path, png.getvalue())
    return len(found)


def _fit(picture: Image.Image) -> Image.Image:
    """Scale an image to its cell. Enlarge small images without smoothing, so that their pixels stay visible."""
    scale = _CELL / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    return picture.convert("RGB").resize(size, Resampling.NEAREST if scale > 1 else Resampling.BILINEAR)


def _label(example: Example) -> str:
    for name in ("label/text", "label"):
        if name in example.features and example.features[name].values:
            value = example.features[name].values[0]
            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            return text[: _CELL // 6]
    return ""
