"""Reader of rows that a user's Python function yields as dicts. Each part of the rows is a task.

    def rows(part: int, parts: int) -> Iterator[dict[str, Any]]

The first rows determine the columns and their types. To find them, the source starts the function once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from infeed.components.base import user_code
from infeed.components.base.annotations import Positive
from infeed.components.base.checks import check_fields
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRow, BadRows, Batches, OpenedSource, Patterns, conform
from infeed.components.example_gen.sources.python_rows import infer_field, to_batch

_SAMPLE = 1_000  # rows that determine the columns and types
_FIRST_ROWS, _MOST_ROWS = 16, 10_000  # of a batch
_SHOWN = 300  # characters of a bad row
_OPTION = "SOURCE"
_DO = "convert the values in the function"


@dataclass(frozen=True)
class GeneratorOptions:
    """Options of a generator.

    Attributes:
      parts: number of parts. Each is a call of the function, and workers share them.
    """

    parts: Positive = 16

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class GeneratorPart:
    """One call of a function."""

    function: str
    number: int
    parts: int

    @property
    def where(self) -> str:
        return f"{self.function}, part {self.number} of {self.parts}"

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows. An error in the user's code names its file and line."""
        with user_code.translate_errors(_OPTION):
            for number, row in enumerate(user_code.load(self.function, _OPTION)(self.number, self.parts), start=1):
                if not isinstance(row, Mapping):
                    where = f"{self.where}, row {number}"
                    raise InfeedError(f"a row is {row!r:.60}", where=where, do="yield a dict of columns and values")
                yield row


def open_generator(functions: Patterns, options: IngestOptions, generator: GeneratorOptions) -> OpenedSource:
    """Open functions, one for each input split. Raises InfeedError if one is missing, or yields no or unfit rows."""
    parts = [
        (split, GeneratorPart(function, number, generator.parts))
        for split, function in functions.items()
        for number in range(generator.parts)
    ]
    rows = list(islice((row for _, part in parts for row in part.rows()), _SAMPLE))
    where = parts[0][1].function
    if not rows:
        raise InfeedError("no rows in the input", where=where, do="check the function")
    names = dict.fromkeys(name for row in rows for name in row)  # in the order of their first occurrence
    schema = pa.schema([infer_field(name, [row.get(name) for row in rows], where, _DO) for name in names])
    read = partial(read_part, schema=schema, block_bytes=options.block_bytes)
    source = Source("generator", fingerprint(functions, generator), 0, 0)
    return OpenedSource(source, schema, inputs.as_tasks(iter(parts)), read)


def fingerprint(functions: Patterns, generator: GeneratorOptions) -> str:
    """Return a digest of the sources of the functions. The data that they read is unknown."""
    digests = [user_code.digest(function, _OPTION) for function in functions.values()]
    return hashlib.sha256(f"{digests} {generator.parts}".encode()).hexdigest()[:32]


def read_part(part: GeneratorPart, schema: pa.Schema, block_bytes: int, *, bad_rows: BadRows) -> Batches:
    """Yield the rows of a part in batches of about `block_bytes`."""
    rows, names, first_row, step = part.rows(), set(schema.names), 1, _FIRST_ROWS
    while some := list(islice(rows, step)):
        cells = []
        for row in some:
            if new := sorted(row.keys() - names):
                reason = f"the first {_SAMPLE:,} rows have no column {new[0]!r}"
                bad_rows.report(BadRow(part.where, None, new[0], reason, repr(row)[:_SHOWN]))
            else:
                cells.append(tuple(map(row.get, schema.names)))
        batch = to_batch(cells, schema, part.where, bad_rows, first_row)
        yield from conform([batch], schema, part.where, bad_rows, first_row=first_row)
        first_row += len(some)
        step = min(max(1, block_bytes * len(some) // max(batch.nbytes, 1)), _MOST_ROWS)
