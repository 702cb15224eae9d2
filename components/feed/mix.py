"""Rows drawn by share: several datasets mixed, or classes balanced, exactly and the same each time.

Rows form groups. An epoch takes as many rows of each group as its share of the epoch comes to, going round the group's
own rows: where the last epoch ended the next goes on, so no row of a group is seen twice before all others were seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.shares import Shares


@dataclass(frozen=True)
class Group:
    """Row numbers, int64 [rows], that share a part of each epoch: `share` of all groups' shares together."""

    rows: npt.NDArray[np.int64]
    share: float


def groups_of(keys: npt.NDArray[np.int64], shares: Shares) -> list[Group]:
    """Groups the rows by their keys.

    Args:
      keys: of each row, int64 [rows], the place of its split or class among the names.
      shares: of the keys; rows of a key without one are never drawn.

    Raises:
      InfeedError: a share of a key that no row has.
    """
    groups = []
    for key, (name, share) in enumerate(zip(shares.names, shares.shares, strict=True)):
        rows = np.flatnonzero(keys == key)
        if share and not len(rows):
            raise InfeedError(
                f"{name!r} has a share of {share:g}, and there is no such record",
                where=shares.option,
                do="Leave it out, or give it the share 0.",
            )
        if share:
            groups.append(Group(rows, share))
    return groups


def counts(shares: Sequence[float], total: int) -> list[int]:
    """`total` shared out by the largest remainder: whole numbers that add up to it."""
    exact = np.asarray(shares) / sum(shares) * total
    whole = np.floor(exact).astype(int)
    for number in np.argsort(whole - exact, kind="stable")[: total - whole.sum()]:
        whole[number] += 1
    return [int(one) for one in whole]


def draw(groups: Sequence[Group], total: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """The rows of an epoch, int64 [total], group after group."""
    wanted = counts([group.share for group in groups], total)
    return tf.concat(
        [
            _draw_one(tf.constant(group.rows), count, tf.constant([seed, number], tf.int64), epoch)
            for number, (group, count) in enumerate(zip(groups, wanted, strict=True))
        ],
        axis=0,
    )


def _draw_one(rows: tf.Tensor, count: int, seed: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
    """Rows `epoch * count` and the following of an endless series of permutations; the order of whole ones is free."""

    def permuted(number: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(rows, tf.random.experimental.stateless_fold_in(seed, number))

    size = int(rows.shape[0])
    number, offset = epoch * count // size, epoch * count % size
    head = permuted(number)[offset : offset + count]
    left = count - tf.size(head, tf.int64)
    tail = permuted(number + 1 + left // size)[: left % size]
    return tf.concat([head, tf.tile(rows, [left // size]), tail], axis=0)
