"""Opening of a large text input from a bounded sample.

Each task finds the start of its rows, and records the kinds of its columns. If they differ from those of the sample,
`settling` reads the input again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.files import FileStat
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import AstrayError, BadRows, Findings
from infeed.components.example_gen.sources import streams
from infeed.components.example_gen.sources.streams import RowRules, Span, Stretch, TextBlock

SAMPLE_BYTES = 32 << 20  # smaller inputs are read whole. Half of the sample is the first rows
_PIECES = 64  # pieces of the sample
Part = Span | Stretch


def is_small(found: Mapping[str | None, list[FileStat]]) -> bool:
    """Return whether the sample covers the whole input."""
    return sum(file.size for file in inputs.all_files(found)) <= SAMPLE_BYTES


def parts_of(file: FileStat, rows: Span, encoding: str, block_bytes: int) -> list[Part]:
    """Return the parts of a file with these rows, one for each task. A compressed or recoded file is one part."""
    return [*streams.stretches(rows, file.size, block_bytes)] if streams.is_plain(file.path, encoding) else [rows]


@dataclass(frozen=True)
class PartReader:
    """Reads parts of files, block by block."""

    rules: RowRules
    encoding: str
    block_bytes: int
    max_row_mb: int

    def blocks(self, part: Part, bad_rows: BadRows) -> Iterator[TextBlock]:
        """Yield the blocks of a part, then set `bad_rows.found`. Raise AstrayError if a row crosses its bounds."""
        span, before = self._span(part), None
        if isinstance(part, Stretch) and not part.is_first:
            before = streams.lines_before(span, self.rules, self.block_bytes)
        bad_rows.lines_before, bad_rows.found, lines = before, None, 0
        rules, limit = self.rules, self.max_row_mb
        for block in streams.read_blocks(span, self.encoding, self.block_bytes, rules.whole, limit, before):
            if block.final and span.stop is not None and not rules.is_closed(block.data):
                raise AstrayError
            lines += streams.count_lines(block.data)
            yield block
        bad_rows.found = Findings(lines=lines, line=None if before else span.line)

    def sample(self, parts: Sequence[Part]) -> Iterator[TextBlock]:
        """Yield the first rows of evenly spaced parts."""
        chosen = sorted({*np.linspace(0, len(parts) - 1, _PIECES).astype(int).tolist()})
        some = replace(self, block_bytes=max(SAMPLE_BYTES // 2 // len(chosen), 1))
        for number in chosen:
            with suppress(InfeedError, AstrayError):  # the task reports the error later, with its place in the file
                block = next(some._first_blocks(parts[number]), None)
                if block is not None and self.rules.is_closed(block.data):
                    yield block

    def prefix(self, parts: Sequence[Part]) -> Iterator[TextBlock]:
        """Yield the first rows of the input."""
        left = SAMPLE_BYTES // 2
        for part in parts:
            for block in self._first_blocks(part):
                yield block
                left -= len(block.data)
                if left <= 0:
                    return

    def _first_blocks(self, part: Part) -> Iterator[TextBlock]:
        return streams.read_blocks(self._span(part), self.encoding, self.block_bytes, self.rules.whole, self.max_row_mb)

    def _span(self, part: Part) -> Span:
        return part if isinstance(part, Span) else streams.find_span(part, self.rules, self.max_row_mb)


def with_kinds(bad_rows: BadRows, kinds: Any, *, astray: bool = False) -> None:
    """Add column kinds to the findings of a part, once it is read."""
    if bad_rows.found is not None:
        bad_rows.found = replace(bad_rows.found, kinds=kinds, astray=astray)
