"""Reading of JSON Lines row by row, with each value as written.

Ingest infers the type of a column from all rows. The readers of this module keep each value, so that rows are
independent. A number is a `JsonNumber`, its text. As in ingest, objects become columns with dotted names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRow
from infeed.components.example_gen.sources import streams
from infeed.components.example_gen.sources.json_lines import parse_line
from infeed.components.example_gen.sources.jsonl import JsonlOptions, blocks_of
from infeed.components.example_gen.sources.kinds import MismatchError
from infeed.components.example_gen.sources.streams import Span, TextBlock

Row = dict[str, Any]


class JsonNumber(str):
    """The text of a number, such as `1.10`."""

    __slots__ = ()


def read_rows(path: str, options: JsonlOptions, ingest: IngestOptions) -> Iterator[list[Row | BadRow]]:
    """Yield blocks of flat rows in order. A line that is not a JSON object is a BadRow."""
    for block in blocks_of(Span(path), options.encoding, ingest):
        lines = ((number, line) for number, line in streams.numbered_lines(block) if line.strip())
        yield [_row(block, number, line, options.flatten) for number, line in lines]


def _row(block: TextBlock, number: int, line: bytes, flatten: bool) -> Row | BadRow:
    try:
        return _joined(_flat(parse_line(line, block.most_mb, JsonNumber), "", flatten))
    except MismatchError as error:
        return block.bad_row(number, error.reason, line, error.column or None)


def _joined(columns: Iterator[tuple[str, Any]]) -> Row:
    row: Row = {}
    for name, value in columns:
        if name in row:
            raise MismatchError(name, f"the column {name!r} occurs twice")
        row[name] = value
    return row


def _flat(row: Mapping[str, Any], prefix: str, flatten: bool) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.", flatten)
        elif flatten and isinstance(value, list):
            yield from _unnested(f"{prefix}{name}", value)
        else:
            yield f"{prefix}{name}", value


def _unnested(name: str, items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Replace a list of objects by a list for each field, and join a list of lists; see `schemas.flatten_lists`."""
    if any(isinstance(one, dict) for one in items):
        rows = [dict(_flat(one, "", False)) for one in items if isinstance(one, dict)]
        for field in dict.fromkeys(field for row in rows for field in row):
            yield from _unnested(f"{name}.{field}", [row[field] for row in rows if row.get(field) is not None])
    elif any(isinstance(one, list) for one in items):
        yield from _unnested(name, [item for one in items if isinstance(one, list) for item in one if item is not None])
    else:
        yield name, items


def as_json(value: Any) -> str:
    """Return the JSON text of a value, with numbers as written."""
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(as_json, value))}]"
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{json.dumps(name, ensure_ascii=False)}: {as_json(one)}' for name, one in value.items())}}}"
        )
    return json.dumps(value, ensure_ascii=False)
