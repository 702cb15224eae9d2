"""Vocabularies in this process: tokens are counted, merged over spans, cut, ordered and written, as tft on Beam does.

The order is total: by count and then by token, both from the largest. So the file is the same whatever the order of the
rows.
"""

from __future__ import annotations

import hashlib
import heapq
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
from tensorflow_transform import analyzers, tf_utils
from tensorflow_transform.beam import analyzer_impls

from infeed.components.dataset import files, records

Entry = tuple[Any, Any]  # (what it is ordered by, token)
_Ordering = analyzers._VocabOrderingType
_BY_LABEL = {_Ordering.WEIGHTED_MUTUAL_INFORMATION: True, _Ordering.MUTUAL_INFORMATION: False}  # -> is it weighted
_SENTINELS = (tf_utils.GLOBAL_Y_COUNT_SENTINEL_STRING, tf_utils.GLOBAL_Y_COUNT_SENTINEL_INT)
_LEAST = float("-inf")


def is_known(ordering: int) -> bool:
    return ordering in (_Ordering.FREQUENCY, _Ordering.WEIGHTED_FREQUENCY, *_BY_LABEL)


@dataclass
class Counts:
    """How often each token occurs."""

    counts: Counter[Any] = field(default_factory=Counter)

    def add(self, values: tuple[npt.NDArray[Any], ...]) -> None:
        self.counts.update(values[0].tolist())

    def merge(self, other: Counts) -> None:
        self.counts.update(other.counts)

    def elements(self) -> list[Any]:
        return list(self.counts.items())


@dataclass
class Weights:
    """The sum of the weights of each token."""

    sums: dict[Any, float] = field(default_factory=dict)

    def add(self, values: tuple[npt.NDArray[Any], ...]) -> None:
        tokens, weights = values
        for token, weight in zip(tokens.tolist(), weights.tolist(), strict=True):
            self.sums[token] = self.sums.get(token, 0) + weight

    def merge(self, other: Weights) -> None:
        for token, weight in other.sums.items():
            self.sums[token] = self.sums.get(token, 0) + weight

    def elements(self) -> list[Any]:
        return list(self.sums.items())


@dataclass
class LabelMeans:
    """For each token how often it occurs and with which labels, as tft's combiner has it."""

    weighted: bool
    accumulators: dict[Any, Any] = field(default_factory=dict)

    def add(self, values: tuple[npt.NDArray[Any], ...]) -> None:
        self.add_pairs(analyzer_impls._flatten_to_key_and_means_accumulator_list(values, self.weighted))

    def merge(self, other: LabelMeans) -> None:
        self.add_pairs(other.accumulators.items())

    def add_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        combine = self._combine()
        for token, more in pairs:
            before = self.accumulators.get(token)
            before = combine.create_accumulator() if before is None else before
            self.accumulators[token] = combine.add_input(before, more)

    def elements(self) -> list[Any]:
        combine = self._combine()
        return [(token, combine.extract_output(one)) for token, one in self.accumulators.items()]

    def _combine(self) -> Any:
        return analyzer_impls._WeightedMeanCombineFn(output_shape=(None,), compute_weighted=self.weighted)


def counter_of(ordering: int) -> Counts | Weights | LabelMeans:
    """What adds up the tokens of a vocabulary that is ordered in this way."""
    if ordering in _BY_LABEL:
        return LabelMeans(_BY_LABEL[ordering])
    return Weights() if ordering == _Ordering.WEIGHTED_FREQUENCY else Counts()


def merge(operation: Any, accumulated: Iterable[tuple[Any, Any]]) -> list[Entry]:
    """What was counted of each span, as entries of one vocabulary."""
    if operation.vocab_ordering_type in _BY_LABEL:
        return _by_information(operation, accumulated)
    sums: dict[Any, Any] = {}
    for token, count in accumulated:
        sums[token] = sums.get(token, 0) + count
    return [(count, token) for token, count in sums.items()]


def _by_information(operation: Any, accumulated: Iterable[tuple[Any, Any]]) -> list[Entry]:
    """((mutual information with the label, frequency), token) of each."""
    merged = LabelMeans(_BY_LABEL[operation.vocab_ordering_type])
    merged.add_pairs(accumulated)
    by_token = dict(merged.elements())
    if not by_token:
        return []
    (overall,) = (by_token.pop(token) for token in _SENTINELS if token in by_token)
    least = operation.min_diff_from_avg
    if least is None:
        least = analyzers.calculate_recommended_min_diff_from_avg(overall.count * overall.weight)
    adjusted = operation.use_adjusted_mutual_info
    entries = []
    for pair in by_token.items():
        token, (information, _, frequency) = analyzer_impls._calculate_mutual_information_for_feature_value(
            pair, overall, use_adjusted_mutual_info=adjusted, min_diff_from_avg=least
        )
        entries.append(((information, frequency), token))
    return entries


def prune(operation: Any, entries: list[Entry]) -> list[Entry]:
    """The entries that are frequent and informative enough, and of those the `top_k`; of each key, if there is one."""
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


def _above(entries: list[Entry], frequency: float, information: float) -> list[Entry]:
    def is_kept(order: Any) -> bool:
        informed, frequent = order if isinstance(order, tuple) else (float("inf"), order)
        return bool(frequent >= frequency and informed >= information)

    if frequency > 0 or information > _LEAST:
        entries = [entry for entry in entries if is_kept(entry[0])]
    return [(order[0] if isinstance(order, tuple) else order, token) for order, token in entries]


def _as_bytes(entries: list[Entry], dtype: str) -> list[Entry]:
    if dtype == tf.string.name:
        return entries
    return [(order, tf.compat.as_bytes(tf.compat.as_str_any(token))) for order, token in entries]


def _largest_by_key(entries: list[Entry], count: int, key_fn: Callable[[Any], Any]) -> list[Entry]:
    groups: dict[Any, list[Entry]] = {}
    for order, token in entries:
        order = float(order) if isinstance(order, np.float64) else order
        groups.setdefault(key_fn(token), []).append((order, token))
    return [entry for group in groups.values() for entry in heapq.nlargest(count, group)]


def _dummy(dtype: str) -> list[Entry]:
    """What an empty vocabulary holds, since TensorFlow's tables must not be empty."""
    return [analyzers.get_empy_vocabulary_dummy_value(dtype)]


def write(operation: Any, folder: str, entries: list[Entry], reserved: Any | None) -> str:
    """Writes the vocabulary's file and gives its path; the reserved tokens come first."""
    taken = [] if reserved is None else list(reserved)
    if not operation.input_is_sorted or taken:
        held = set(taken)
        entries = [entry for entry in entries if entry[1] not in held]
        entries.sort(**_order(operation.fingerprint_shuffle))
        entries = [(-1, token) for token in taken] + entries
        entries = entries or _dummy(operation.input_dtype)
    lines = [_line(entry, operation.store_frequency) for entry in entries]
    path = posixpath.join(folder, operation.vocab_filename)
    if operation.file_format == "text":
        files.write_bytes(path, b"".join(line + b"\n" for line in lines))
        return path
    path = f"{path}.tfrecord.gz"
    records.write_records(path, [records.frame_records(pa.array(lines, pa.large_binary()))], gzip_level=1)
    return path


def _order(shuffled: bool) -> dict[str, Any]:
    return {"key": lambda entry: hashlib.sha1(entry[1]).digest()} if shuffled else {"reverse": True}


def _line(entry: Entry, with_frequency: bool) -> bytes:
    order, token = entry
    if not with_frequency:
        return bytes(token)
    return bytes(tf.compat.as_bytes(f"{order} {tf.compat.as_str_any(token)}"))
