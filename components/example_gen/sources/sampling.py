"""A large text input is opened by a bounded sample, spread over its files, and its tasks find where their rows begin.

The kinds of columns in the sample are a guess. Each task finds those of its own part, and `settling` has the input read
again if they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.components.dataset.files import FileStat
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import AstrayError, BadRows, Findings
from infeed.components.example_gen.sources import streams
from infeed.components.example_gen.sources.streams import RowRules, Span, Stretch, TextBlock

SAMPLE_BYTES = 32 << 20  # an input of no more is read whole for its types; a half is for the first rows
_PIECES = 64  # of the sample
Part = Span | Stretch


def is_small(found: Mapping[str | None, list[FileStat]]) -> bool:
    """Whether the sample holds the whole input."""
    return sum(file.size for file in inputs.all_files(found)) <= SAMPLE_BYTES


def parts_of(file: FileStat, rows: Span, encoding: str, block_bytes: int) -> list[Part]:
    """The parts of a file, for a task each; a file that is compressed or recoded cannot be cut.

    Args:
      rows: all rows of the file.
    """
    if not streams.is_plain(file.path, encoding):
        return [rows]
    return list(streams.stretches(rows, file.size, block_bytes))


@dataclass(frozen=True)
class PartReader:
    """Reads parts of files, block by block."""

    rules: RowRules
    encoding: str
    block_bytes: int
    max_row_mb: int

    @classmethod
    def of(cls, rules: RowRules, encoding: str, options: IngestOptions) -> PartReader:
        return cls(rules, encoding, options.block_bytes, options.max_row_mb)

    def blocks(self, part: Part, bad_rows: BadRows) -> Iterator[TextBlock]:
        """The blocks of a part. In the end `bad_rows.found` has its lines.

        Raises:
          AstrayError: the part begins or ends within a row.
        """
        span, before = self._span(part), None
        if isinstance(part, Stretch) and not part.is_first:
            before = streams.lines_before(part, span, self.rules, self.block_bytes)
        bad_rows.lines_before, bad_rows.found, lines = before, None, 0
        rules, limit = self.rules, self.max_row_mb
        for block in streams.read_blocks(span, self.encoding, self.block_bytes, rules.whole, limit, before):
            if block.final and span.stop is not None and not rules.is_closed(block.data):
                raise AstrayError
            lines += streams.count_lines(block.data)
            yield block
        bad_rows.found = Findings(lines=lines, line=None if before else span.line)

    def sample(self, parts: Sequence[Part]) -> Iterator[TextBlock]:
        """The first rows of some of the parts, at regular places."""
        chosen = sorted({*np.linspace(0, len(parts) - 1, _PIECES).astype(int).tolist()})
        some = replace(self, block_bytes=max(SAMPLE_BYTES // 2 // len(chosen), 1))
        for number in chosen:
            with suppress(InfeedError, AstrayError):  # which is found again, and then with its place in the file
                block = next(some._first_blocks(parts[number]), None)
                if block is not None and self.rules.is_closed(block.data):
                    yield block

    def prefix(self, parts: Sequence[Part]) -> Iterator[TextBlock]:
        """The first rows of the input."""
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
    """Adds the kinds of the columns to what was found in a part, once it is read."""
    if bad_rows.found is not None:
        bad_rows.found = replace(bad_rows.found, kinds=kinds, astray=astray)
