"""Rows sampled by weight: several datasets mixed, or classes balanced, exactly and the same each time.

Rows form groups, one a split or one a class. An epoch takes as many rows of each group as its weight comes to, going
round the group's own rows: where the last epoch ended the next goes on, so no row of a group is seen twice before all
others were seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from infeed.components.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.shards import ShardFile

if TYPE_CHECKING:
    import tensorflow as tf

_SHOWN = 5


@dataclass(frozen=True)
class SamplingWeights:
    """`names` are the splits in the order of their records, or the classes by their indices; one of `weights` each."""

    by: Literal["split", "class"]
    names: tuple[str, ...]
    weights: tuple[float, ...]

    @property
    def option(self) -> str:
        """Where they were asked for."""
        return "FeedOptions.mix" if self.by == "split" else "FeedOptions.class_shares"

    def describe(self) -> str:
        """In words, for the plan: `70 % of 'old', 30 % of 'new'`."""
        total = sum(self.weights)
        sampled = [(name, weight) for name, weight in zip(self.names, self.weights, strict=True) if weight]
        shown = ", ".join(f"{100 * (weight / total):.3g} % of {name!r}" for name, weight in sampled[:_SHOWN])
        return f"{shown} and so on" if len(sampled) > _SHOWN else shown


@dataclass(frozen=True)
class Group:
    """Row numbers, int64 [rows], and the weight that decides how many of them are in each epoch."""

    rows: npt.NDArray[np.int64]
    weight: float


def sampling_weights(
    shards: Sequence[ShardFile], class_names: Sequence[str], options: FeedOptions
) -> SamplingWeights | None:
    """What the options ask for; None where they ask for nothing.

    Raises:
      InfeedError: a name that does not exist, or no share for a split that is trained on.
    """
    splits = tuple(dict.fromkeys(shard.split for shard in shards))
    if options.mix:
        _check_names(options.mix, splits, "FeedOptions.mix", "splits that are trained on")
        missing = [split for split in splits if split not in options.mix]
        if missing:
            raise InfeedError(
                f"mix gives no share to the split {missing[0]!r}",
                where="FeedOptions.mix",
                do="give it one; 0 leaves it out",
            )
        return SamplingWeights("split", splits, tuple(float(options.mix[split]) for split in splits))
    if not options.class_shares:
        return None
    asked = dict.fromkeys(class_names, 1.0) if options.class_shares == "equal" else options.class_shares
    _check_names(asked, class_names, "FeedOptions.class_shares", "classes")
    return SamplingWeights("class", tuple(class_names), tuple(float(asked.get(name, 0)) for name in class_names))


def group_rows(keys: npt.NDArray[np.int64], weights: SamplingWeights) -> list[Group]:
    """Groups the rows by their keys.

    Args:
      keys: of each row, int64 [rows], the place of its split or class among the names.
      weights: of the keys; rows of a key of weight 0 are never sampled.

    Raises:
      InfeedError: a key has a weight and no row.
    """
    groups = []
    for key, (name, weight) in enumerate(zip(weights.names, weights.weights, strict=True)):
        rows = np.flatnonzero(keys == key)
        if weight and not len(rows):
            raise InfeedError(
                f"{name!r} has a share of {weight:g}, and there is no such record",
                where=weights.option,
                do="leave it out, or give it the share 0",
            )
        if weight:
            groups.append(Group(rows, weight))
    return groups


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """`total` apportioned by the method of the largest remainder: whole numbers that add up to it."""
    exact = np.asarray(weights) / sum(weights) * total
    whole = np.floor(exact).astype(int)
    for number in np.argsort(whole - exact, kind="stable")[: total - whole.sum()]:
        whole[number] += 1
    return [int(one) for one in whole]


def sample(groups: Sequence[Group], total: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """The rows of an epoch, int64 [total], group after group."""
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
    """Rows `epoch * count` and the following of an endless series of permutations; the order of whole ones is free."""
    import tensorflow as tf

    def permuted(number: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(rows, tf.random.experimental.stateless_fold_in(seed, number))

    size = int(rows.shape[0])
    number, offset = epoch * count // size, epoch * count % size
    head = permuted(number)[offset : offset + count]
    left = count - tf.size(head, tf.int64)
    tail = permuted(number + 1 + left // size)[: left % size]
    return tf.concat([head, tf.tile(rows, [left // size]), tail], axis=0)


def _check_names(asked: Mapping[str, float], names: Sequence[str], where: str, kind: str) -> None:
    if not names:
        raise InfeedError(f"there are no {kind} known by name", where=where, do="train on a label with a vocabulary")
    for name in asked:
        if name not in names:
            raise InfeedError(f"there is no {name!r}", where=where, do=f"name one of the {kind}: {', '.join(names)}")
