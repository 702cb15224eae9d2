"""Which share of training each dataset or class was asked to have: the options beside what there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infeed.components.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.shards import ShardFile


@dataclass(frozen=True)
class Shares:
    """`names` are the splits in the order of their records, or the classes by their indices; one of `shares` each."""

    by: Literal["split", "class"]
    names: tuple[str, ...]
    shares: tuple[float, ...]

    @property
    def option(self) -> str:
        """Where they were asked for."""
        return "FeedOptions.mix" if self.by == "split" else "FeedOptions.class_shares"

    def describe(self) -> str:
        """In words, for the plan: `70 % of 'old', 30 % of 'new'`."""
        some = [(name, share / sum(self.shares)) for name, share in zip(self.names, self.shares, strict=True) if share]
        listed = ", ".join(
            f"{share:.3g} % of {name!r}" for name, share in ((name, 100 * one) for name, one in some[:5])
        )
        return f"{listed} and so on" if len(some) > 5 else listed


def shares_of(shards: Sequence[ShardFile], class_names: Sequence[str], options: FeedOptions) -> Shares | None:
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
                do="Give it one; 0 leaves it out.",
            )
        return Shares("split", splits, tuple(float(options.mix[split]) for split in splits))
    if not options.class_shares:
        return None
    asked = dict.fromkeys(class_names, 1.0) if options.class_shares == "equal" else options.class_shares
    _check_names(asked, class_names, "FeedOptions.class_shares", "classes")
    return Shares("class", tuple(class_names), tuple(float(asked.get(name, 0)) for name in class_names))


def _check_names(asked: Mapping[str, float], names: Sequence[str], where: str, kind: str) -> None:
    if not names:
        raise InfeedError(f"there are no {kind} known by name", where=where, do="Train on a label with a vocabulary.")
    for name in asked:
        if name not in names:
            raise InfeedError(f"there is no {name!r}", where=where, do=f"The {kind} are: {', '.join(names)}.")
