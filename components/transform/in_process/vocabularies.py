"""Count, merge, prune, order and write the tokens of a vocabulary, as tft does on Beam.

The order is total, by count and then by token, both from the largest. The order of the rows does not change the file. A
vocabulary that is ordered by count or weight takes bounded memory, unless `fingerprint_shuffle` or `key_fn` needs all
tokens at once.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import itertools
import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
from tensorflow_transform import analyzers, tf_utils

from infeed.components.dataset import files, records
from infeed.components.seams import tft as tft_seam
from infeed.components.transform.tally import Tally

Entry = tuple[Any, Any]  # (what it is ordered by, token)
_SENTINELS = (tf_utils.GLOBAL_Y_COUNT_SENTINEL_STRING, tf_utils.GLOBAL_Y_COUNT_SENTINEL_INT)
_LEAST = float("-inf")
_CHUNK = 1 << 16  # tokens that are objects of Python at a time


def is_known(operation: Any) -> bool:
    """Report whether this module can count and order the tokens of a vocabulary."""
    return bool(tft_seam.vocabulary_order(operation.vocab_ordering_type))


def _order_of(operation: Any) -> tuple[bool, bool]:
    """Return whether the order depends on the label, and whether it depends on weights."""
    order = tft_seam.vocabulary_order(operation.vocab_ordering_type)
    return order.endswith("mutual_information"), order.startswith("weighted_")


@dataclass(frozen=True)
class TokenCounts:
    """Count or sum of weights of each token. Iteration yields (token, count) in the order of the tokens.

    Attributes:
      is_text: whether tokens are bytes; else int64.
    """

    tally: Tally
    weighted: bool
    is_text: bool

    def add(self, values: tuple[npt.NDArray[Any], ...]) -> None:
        self.tally.add(values[0], values[1].astype(np.float64) if self.weighted else None)

    def merge(self, other: TokenCounts) -> None:
        self.tally.merge(other.tally)

    def elements(self) -> TokenCounts:
        return self

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.tally.items():
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


@dataclass(frozen=True)
class Ranked:
    """Entries of the most frequent tokens, the largest first.

    Attributes:
      size: maximum number of entries; None for all.
      least: minimum count.
    """

    tally: Tally
    size: int | None = None
    least: float = _LEAST

    def __iter__(self) -> Iterator[Entry]:
        for batch in self.tally.ranked(self.size, self.least):
            yield from zip(batch.column(1).to_pylist(), batch.column(0).to_pylist(), strict=True)

    @functools.cached_property
    def number(self) -> int:
        counts = (batch.column(1).to_numpy() for batch in self.tally.items())
        kept = sum(int(np.count_nonzero(some >= self.least)) for some in counts)
        return kept if self.size is None else min(kept, self.size)


@dataclass
class LabelMeans:
    """Counts and label means of each token, in accumulators of tft's combiner."""

    weighted: bool
    accumulators: dict[Any, Any] = field(default_factory=dict)

    def add(self, values: tuple[npt.NDArray[Any], ...]) -> None:
        self.add_pairs(tft_seam.label_means(values, weighted=self.weighted))

    def merge(self, other: LabelMeans) -> None:
        self.add_pairs(other.accumulators.items())

    def add_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        combine = tft_seam.label_means_combiner(weighted=self.weighted)
        for token, more in pairs:
            before = self.accumulators.get(token)
            before = combine.create_accumulator() if before is None else before
            self.accumulators[token] = combine.add_input(before, more)

    def elements(self) -> list[Any]:
        combine = tft_seam.label_means_combiner(weighted=self.weighted)
        return [(token, combine.extract_output(one)) for token, one in self.accumulators.items()]


def counter_of(operation: Any, folder: str) -> Callable[[], TokenCounts | LabelMeans]:
    """Return a function that makes a counter of tokens. It can travel to workers, unlike tft's operations.

    Args:
      folder: folder for tokens that exceed the memory limit.
    """
    by_label, weighted = _order_of(operation)
    if by_label:
        return functools.partial(LabelMeans, weighted)
    return functools.partial(_token_counts, folder, weighted=weighted, is_text=operation.input_dtype == tf.string.name)


def _token_counts(folder: str, *, weighted: bool, is_text: bool) -> TokenCounts:
    return TokenCounts(Tally(files.join(folder, "tallies")), weighted, is_text)


def merge(operation: Any, folder: str, accumulated: Iterable[tuple[Any, Any]]) -> list[Entry] | Ranked:
    """Return the counts of all spans as the entries of one vocabulary."""
    by_label, weighted = _order_of(operation)
    if by_label:
        return _by_information(operation, accumulated, weighted)
    if isinstance(accumulated, TokenCounts) and accumulated.is_text:
        return Ranked(accumulated.tally)
    merged = _token_counts(folder, weighted=weighted, is_text=True)
    for pairs in _chunks(accumulated):
        tokens, counts = zip(*pairs, strict=True)
        dtype = np.float64 if merged.weighted else np.int64
        merged.tally.add(np.array(list(map(_text, tokens)), object), np.array(counts, dtype))
    return Ranked(merged.tally)


def _by_information(operation: Any, accumulated: Iterable[tuple[Any, Any]], weighted: bool) -> list[Entry]:
    """Return ((mutual information with the label, frequency), token) of each token."""
    merged = LabelMeans(weighted)
    merged.add_pairs(accumulated)
    by_token = dict(merged.elements())
    if not by_token:
        return []
    (overall,) = (by_token.pop(token) for token in _SENTINELS if token in by_token)
    least = operation.min_diff_from_avg
    if least is None:
        least = analyzers.calculate_recommended_min_diff_from_avg(overall.count * overall.weight)
    adjusted = operation.use_adjusted_mutual_info
    return [
        (tft_seam.mutual_information(token, means, overall, adjusted=adjusted, least=least), token)
        for token, means in by_token.items()
    ]


def prune(operation: Any, entries: Iterable[Any]) -> list[Entry] | Ranked:
    """Return the entries that reach the thresholds, at most `top_k`, and with a `key_fn` the first ones of each key."""
    if isinstance(entries, Ranked) and operation.key_fn is None:
        least = operation.frequency_threshold
        ranked = Ranked(entries.tally, operation.top_k, least if least > 0 else _LEAST)
        return ranked if operation.top_k is None or ranked.number else _dummy(operation.input_dtype)
    entries = list(entries)
    kept = _above(entries, operation.frequency_threshold, operation.informativeness_threshold)
    kept = _as_bytes(kept, operation.input_dtype)
    if operation.top_k is not None:
        kept = heapq.nlargest(operation.top_k, kept) or _dummy(operation.input_dtype)
    if operation.key_fn is None:
        return kept
    covering = _above(entries, operation.coverage_frequency_threshold, operation.coverage_informativeness_threshold)
    covering = _as_bytes(covering, operation.input_dtype)
    if operation.coverage_top_k is not None:
        covering = _largest_by_key(covering, operation.coverage_top_k, operation.key_fn)
    return list(dict.fromkeys([*kept, *covering]))


def _above(entries: Iterable[Entry], frequency: float, information: float) -> list[Entry]:
    def is_kept(order: Any) -> bool:
        informed, frequent = order if isinstance(order, tuple) else (float("inf"), order)
        return bool(frequent >= frequency and informed >= information)

    if frequency > 0 or information > _LEAST:
        entries = (entry for entry in entries if is_kept(entry[0]))
    return [(order[0] if isinstance(order, tuple) else order, token) for order, token in entries]


def _as_bytes(entries: list[Entry], dtype: str) -> list[Entry]:
    if dtype == tf.string.name:
        return entries
    return [(order, _text(token)) for order, token in entries]


def _text(token: Any) -> bytes:
    return token if isinstance(token, bytes) else bytes(tf.compat.as_bytes(tf.compat.as_str_any(token)))


def _largest_by_key(entries: list[Entry], count: int, key_fn: Callable[[Any], Any]) -> list[Entry]:
    groups: dict[Any, list[Entry]] = {}
    for order, token in entries:
        order = float(order) if isinstance(order, np.float64) else order
        groups.setdefault(key_fn(token), []).append((order, token))
    return [entry for group in groups.values() for entry in heapq.nlargest(count, group)]


def _dummy(dtype: str) -> list[Entry]:
    return [tft_seam.empty_vocabulary_entry(dtype)]


def number_of(entries: Any) -> int:
    return entries.number if isinstance(entries, Ranked) else len(entries)


def write(operation: Any, folder: str, entries: Iterable[Entry], reserved: Any | None) -> str:
    """Write the vocabulary, the reserved tokens first, and return the path of its file."""
    taken = [] if reserved is None else list(reserved)
    if not operation.input_is_sorted or taken:
        entries = _arranged(entries, taken, operation.fingerprint_shuffle)
        first = list(itertools.islice(entries, 1)) or _dummy(operation.input_dtype)
        entries = itertools.chain(first, entries)
    lines = _chunks(_line(entry, operation.store_frequency) for entry in entries)
    path = posixpath.join(folder, operation.vocab_filename)
    if operation.file_format == "text":
        with files.open_output(path) as file:
            for some in lines:
                file.write(b"".join(line + b"\n" for line in some))
        return path
    path = f"{path}.tfrecord.gz"
    framed = (records.frame_records(pa.array(some, pa.large_binary())) for some in lines)
    records.write_records(path, framed, gzip_level=1)
    return path


def _arranged(entries: Iterable[Entry], taken: list[Any], shuffled: bool) -> Iterator[Entry]:
    """Yield the reserved tokens, then the other entries in the order of the file."""
    if shuffled or not isinstance(entries, Ranked):
        entries = sorted(entries, **_order(shuffled))
    held = set(taken)
    return itertools.chain(((-1, token) for token in taken), (entry for entry in entries if entry[1] not in held))


def _chunks(some: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(some)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        yield chunk


def _order(shuffled: bool) -> dict[str, Any]:
    return {"key": lambda entry: hashlib.sha1(entry[1]).digest()} if shuffled else {"reverse": True}


def _line(entry: Entry, with_frequency: bool) -> bytes:
    order, token = entry
    if not with_frequency:
        return bytes(token)
    return bytes(tf.compat.as_bytes(f"{order} {tf.compat.as_str_any(token)}"))
