"""Vocabularies as tft computes them on Beam: tokens are counted, merged, pruned, sorted and written.

The order is total: by count, then by token, both descending. So the order of the rows does not change the file. Tokens
that exceed memory are spilled to disk.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import posixpath
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow_transform import analyzers, tf_utils

from infeed.components.dataset import files, records
from infeed.components.seams import tft as tft_seam
from infeed.components.transform.counting import KeyedRuns, Tally, pairs
from infeed.components.transform.in_process.cache import chunks, framed
from infeed.components.transform.in_process.phases import Repeatable, Scratch

Entry = tuple[Any, Any]  # (sort key, token)
_SENTINELS = (tf_utils.GLOBAL_Y_COUNT_SENTINEL_STRING, tf_utils.GLOBAL_Y_COUNT_SENTINEL_INT)
_LEAST = float("-inf")
_RANK_BYTES = 8
_SIGN_BIT, _ALL_BITS = 1 << 63, (1 << 64) - 1


def _order_of(operation: Any) -> tuple[bool, bool]:
    """Return whether the order depends on the label, and whether it depends on weights."""
    order = tft_seam.vocabulary_order(operation.vocab_ordering_type)
    return order.endswith("mutual_information"), order.startswith("weighted_")


@dataclass(frozen=True)
class TokenCounts:
    """Count or sum of weights of each token. Iteration yields (token, count) in token order."""

    tally: Tally
    weighted: bool
    is_text: bool  # tokens are bytes if true, else int64

    def add(self, values: tuple[npt.NDArray[Any], ...]) -> None:
        self.tally.add(values[0], values[1].astype(np.float64) if self.weighted else None)

    def merge(self, other: TokenCounts) -> None:
        self.tally.merge(other.tally)

    def elements(self) -> TokenCounts:
        return self

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return pairs(self.tally.items())


@dataclass(frozen=True)
class Ranked:
    """Entries of the `size` most frequent tokens, or all, with a count of at least `least`, in descending order."""

    tally: Tally
    size: int | None = None
    least: float = _LEAST

    def __iter__(self) -> Iterator[Entry]:
        return ((count, token) for token, count in pairs(self.tally.ranked(self.size, self.least)))

    @functools.cached_property
    def number(self) -> int:
        counts = (batch.column(1).to_numpy() for batch in self.tally.items())
        kept = sum(int(np.count_nonzero(some >= self.least)) for some in counts)
        return kept if self.size is None else min(kept, self.size)


@dataclass
class LabelMeans:
    """Counts and label means of each token, in accumulators of tft's combiner."""

    weighted: bool
    accumulators: KeyedRuns[Any]

    @classmethod
    def of(cls, scratch: Scratch, weighted: bool) -> LabelMeans:
        return cls(weighted, scratch.keyed(functools.partial(_add_means, weighted=weighted)))

    def add(self, values: tuple[npt.NDArray[Any], ...]) -> None:
        self.add_pairs(tft_seam.label_means(values, weighted=self.weighted))

    def merge(self, other: LabelMeans) -> None:
        self.accumulators.merge(other.accumulators)

    def add_pairs(self, means: Iterable[tuple[Any, Any]]) -> None:
        new = _means_combiner(self.weighted).create_accumulator
        for token, more in means:
            self.accumulators.put(token, _add_means(self.accumulators.get(token, new), more, self.weighted))

    def elements(self) -> Repeatable:
        output = _means_combiner(self.weighted).extract_output
        return Repeatable(lambda: ((token, output(one)) for token, one in self.accumulators.items()))


_means_combiner = functools.cache(lambda weighted: tft_seam.label_means_combiner(weighted=weighted))


def _add_means(means: Any, more: Any, weighted: bool) -> Any:
    return _means_combiner(weighted).add_input(means, more)


def counter_of(operation: Any, scratch: Scratch) -> Callable[[], TokenCounts | LabelMeans]:
    """Return a function that creates a counter of tokens. Unlike tft's operations, it can be pickled for workers."""
    by_label, weighted = _order_of(operation)
    if by_label:
        return functools.partial(LabelMeans.of, scratch, weighted)
    return functools.partial(_token_counts, scratch, weighted=weighted, is_text=operation.input_dtype == tf.string.name)


def _token_counts(scratch: Scratch, *, weighted: bool, is_text: bool) -> TokenCounts:
    return TokenCounts(scratch.tally(), weighted, is_text)


def merge(operation: Any, scratch: Scratch, accumulated: Iterable[tuple[Any, Any]]) -> Ranked | Informed:
    """Return the counts of all spans as the entries of one vocabulary."""
    by_label, weighted = _order_of(operation)
    if by_label:
        return _by_information(operation, scratch, accumulated, weighted)
    if isinstance(accumulated, TokenCounts) and accumulated.is_text:
        return Ranked(accumulated.tally)
    tally = scratch.tally()
    for some in chunks(accumulated):
        tokens, counts = zip(*some, strict=True)
        tally.add(np.array(list(map(_text, tokens)), object), np.array(counts, np.float64 if weighted else np.int64))
    return Ranked(tally)


@dataclass(frozen=True)
class InOrder:
    """Distinct entries in the order of the file, at most `size`."""

    entries: KeyedRuns[Entry]
    size: int | None

    @classmethod
    def of(cls, scratch: Scratch, entries: Iterable[Entry], size: int | None = None) -> InOrder:
        runs = scratch.keyed(_first, descends=True)
        for order, token in entries:
            runs.put(_sortable(order) + token, (order, token))
        return cls(runs, size)

    def __iter__(self) -> Iterator[Entry]:
        return itertools.islice((entry for _, entry in self.entries.items()), self.size)

    @functools.cached_property
    def number(self) -> int:
        return len(self.entries) if self.size is None else min(len(self.entries), self.size)


def _sortable(number: float) -> bytes:
    """Return bytes that sort in the order of the numbers."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))  # -0.0 counts as 0.0
    return struct.pack(">Q", bits ^ (_ALL_BITS if bits >> 63 else _SIGN_BIT))


@dataclass(frozen=True)
class Informed:
    """Entries ((mutual information with the label, frequency), token), in token order."""

    orders: KeyedRuns[tuple[float, float]]

    def __iter__(self) -> Iterator[Entry]:
        return ((order, token) for token, order in self.orders.items())

    @functools.cached_property
    def number(self) -> int:
        return len(self.orders)


def _by_information(
    operation: Any, scratch: Scratch, accumulated: Iterable[tuple[Any, Any]], weighted: bool
) -> Informed:
    merged = LabelMeans.of(scratch, weighted)
    merged.add_pairs(accumulated)
    by_token = merged.elements()
    orders = scratch.keyed(_first)
    overall = next((means for token, means in by_token if token in _SENTINELS), None)
    if overall is None:  # there are no rows
        return Informed(orders)
    least = operation.min_diff_from_avg
    if least is None:
        least = analyzers.calculate_recommended_min_diff_from_avg(overall.count * overall.weight)
    adjusted = operation.use_adjusted_mutual_info
    for token, means in by_token:
        if token not in _SENTINELS:
            order = tft_seam.mutual_information(token, means, overall, adjusted=adjusted, least=least)
            orders.put(_text(token), order)
    return Informed(orders)


def _first(order: Any, _: Any) -> Any:
    return order


def prune(operation: Any, scratch: Scratch, entries: Iterable[Any]) -> list[Entry] | Ranked | InOrder:
    """Return the entries above the thresholds, at most `top_k`. With a `key_fn`, at most `top_k` of each key."""
    kept: list[Entry] | Ranked | InOrder
    if isinstance(entries, Ranked):
        least = operation.frequency_threshold
        kept = Ranked(entries.tally, operation.top_k, least if least > 0 else _LEAST)
    else:
        above = _above(entries, operation.frequency_threshold, operation.informativeness_threshold)
        kept = InOrder.of(scratch, above, operation.top_k)
    if operation.top_k is not None and not kept.number:
        kept = [tft_seam.empty_vocabulary_entry(operation.input_dtype)]
    if operation.key_fn is None:
        return kept
    covering = _above(entries, operation.coverage_frequency_threshold, operation.coverage_informativeness_threshold)
    if operation.coverage_top_k is not None:
        # Sort by key and then by rank, so that the first entries of each key are its best ones.
        by_key = scratch.keyed(_first)
        for rank, (order, token) in enumerate(InOrder.of(scratch, covering)):
            key = repr(operation.key_fn(token)).encode()
            by_key.put(key + rank.to_bytes(_RANK_BYTES, "big"), (order, token))
        groups = itertools.groupby(by_key.items(), key=lambda item: item[0][:-_RANK_BYTES])
        covering = (entry for _, of_key in groups for _, entry in itertools.islice(of_key, operation.coverage_top_k))
    return InOrder.of(scratch, itertools.chain(kept, covering))


def _above(entries: Iterable[Entry], frequency: float, information: float) -> Iterator[Entry]:
    for order, token in entries:
        informed, frequent = order if isinstance(order, tuple) else (float("inf"), order)
        if (frequency <= 0 or frequent >= frequency) and informed >= information:
            yield (informed if isinstance(order, tuple) else order), token


def _text(token: Any) -> bytes:
    return token if isinstance(token, bytes) else bytes(tf.compat.as_bytes(tf.compat.as_str_any(token)))


def number_of(entries: Any) -> int:
    return len(entries) if isinstance(entries, list) else int(entries.number)


def write(operation: Any, scratch: Scratch, entries: Iterable[Entry], reserved: Any | None) -> str:
    """Write the vocabulary, reserved tokens first. Return the path of its file."""
    taken = [] if reserved is None else list(reserved)
    if not operation.input_is_sorted or taken:
        if operation.fingerprint_shuffle:
            # Sorting by a digest is a shuffle that is the same in each run and on each engine.
            hashed = scratch.keyed(_first)
            for entry in entries:
                hashed.put(hashlib.sha1(entry[1]).digest(), entry)
            entries = (entry for _, entry in hashed.items())
        elif not isinstance(entries, Ranked | InOrder):
            entries = InOrder.of(scratch, entries)
        # Reserved tokens have no count. tft writes -1.
        held = frozenset(taken)
        entries = itertools.chain(((-1, token) for token in taken), (one for one in entries if one[1] not in held))
        # A lookup table cannot be initialized from an empty file, so tft writes one entry.
        first = list(itertools.islice(entries, 1)) or [tft_seam.empty_vocabulary_entry(operation.input_dtype)]
        entries = itertools.chain(first, entries)
    lines = (
        tf.compat.as_bytes(f"{order} {tf.compat.as_str_any(token)}") if operation.store_frequency else bytes(token)
        for order, token in entries
    )
    path = posixpath.join(scratch.folder, operation.vocab_filename)
    if operation.file_format == "text":
        with files.open_output(path) as file:
            for some in chunks(lines):
                file.write(b"".join(line + b"\n" for line in some))
        return path
    path = f"{path}.tfrecord.gz"
    records.write_records(path, framed(lines), gzip_level=1)
    return path
