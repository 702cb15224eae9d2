"""Rows sampled by weight, to mix datasets or balance classes exactly and reproducibly.

Rows form groups, one per split or class. An epoch takes rows of each group in proportion to the group's weight. Each
epoch continues in a group where the previous epoch stopped, so no row repeats before all rows of its group were used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.shards import ShardFile

if TYPE_CHECKING:
    import tensorflow as tf

_SHOWN = 5


@dataclass(frozen=True)
class SamplingWeights:
    """Weights of splits in record order, or of classes in index order."""

    by: Literal["split", "class"]
    names: tuple[str, ...]
    weights: tuple[float, ...]

    @property
    def option(self) -> str:
        return "FeedOptions.mix" if self.by == "split" else "FeedOptions.class_shares"

    def describe(self) -> str:
        """Describe the weights for the plan: `70 % of 'old', 30 % of 'new'`."""
        total = sum(self.weights)
        sampled = [(name, weight) for name, weight in zip(self.names, self.weights, strict=True) if weight]
        shown = ", ".join(f"{100 * (weight / total):.3g} % of {name!r}" for name, weight in sampled[:_SHOWN])
        return f"{shown} and so on" if len(sampled) > _SHOWN else shown


@dataclass(frozen=True)
class Group:
    """Row numbers, int64 [rows], and the weight of the group in each epoch."""

    rows: npt.NDArray[np.int64]
    weight: float


def sampling_weights(
    shards: Sequence[ShardFile], class_names: Sequence[str], options: FeedOptions
) -> SamplingWeights | None:
    """Return the weights that the options set. None if they set none.

    Raises InfeedError if a name does not exist, or a training split has no share.
    """
    splits = tuple(dict.fromkeys(shard.split for shard in shards))
    if options.mix:
        _check_names(options.mix, splits, "FeedOptions.mix", "training splits")
        missing = [split for split in splits if split not in options.mix]
        if missing:
            what = f"mix has no share for the split {missing[0]!r}"
            raise InfeedError(what, where="FeedOptions.mix", do="add a share for it, or 0 to exclude it")
        return SamplingWeights("split", splits, tuple(float(options.mix[split]) for split in splits))
    if not options.class_shares:
        return None
    asked = dict.fromkeys(class_names, 1.0) if options.class_shares == "equal" else options.class_shares
    _check_names(asked, class_names, "FeedOptions.class_shares", "classes")
    return SamplingWeights("class", tuple(class_names), tuple(float(asked.get(name, 0)) for name in class_names))


def group_rows(keys: npt.NDArray[np.int64], weights: SamplingWeights) -> list[Group]:
    """Group the rows by key, int64 [rows]: the index of the row's split or class in `weights.names`.

    Rows with weight 0 are never sampled. Raises InfeedError if a key has a weight but no rows.
    """
    groups = []
    for key, (name, weight) in enumerate(zip(weights.names, weights.weights, strict=True)):
        rows = np.flatnonzero(keys == key)
        if weight and not len(rows):
            what = f"{name!r} has a share of {weight:g}, but no record"
            raise InfeedError(what, where=weights.option, do="leave it out, or set its share to 0")
        if weight:
            groups.append(Group(rows, weight))
    return groups


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """Divide `total` into integers by weight, with the largest remainder method."""
    exact = np.asarray(weights) / sum(weights) * total
    whole = np.floor(exact).astype(int)
    for number in np.argsort(whole - exact, kind="stable")[: total - whole.sum()]:
        whole[number] += 1
    return [int(one) for one in whole]


def sample(groups: Sequence[Group], total: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """Return the rows of an epoch, int64 [total], one group after another."""
    import tensorflow as tf

    counts = apportion([group.weight for group in groups], total)
    return tf.concat(
        [
            _sample_group(tf.constant(group.rows), count, tf.constant([seed, number], tf.int64), epoch)
            for number, (group, count) in enumerate(zip(groups, counts, strict=True))
        ],
        axis=0,
    )


def _sample_group(rows: tf.Tensor, count: int, seed: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
    """Return `count` rows, starting at `epoch * count`, of an endless series of permutations of `rows`.

    The result is shuffled later, so a complete permutation is returned in its original order.
    """
    import tensorflow as tf

    def permuted(number: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(rows, tf.random.experimental.stateless_fold_in(seed, number))

    size = int(rows.shape[0])
    # The rows of an epoch span the rest of one permutation, whole permutations, and the start of another.
    number, offset = epoch * count // size, epoch * count % size
    head = permuted(number)[offset : offset + count]
    left = count - tf.size(head, tf.int64)
    tail = permuted(number + 1 + left // size)[: left % size]
    return tf.concat([head, tf.tile(rows, [left // size]), tail], axis=0)


def _check_names(asked: Mapping[str, float], names: Sequence[str], where: str, kind: str) -> None:
    if not names:
        raise InfeedError(f"{kind} have no names", where=where, do="train on a label that has a vocabulary")
    for name in asked:
        if name not in names:
            raise InfeedError(f"there is no {name!r}", where=where, do=f"use one of the {kind}: {', '.join(names)}")
