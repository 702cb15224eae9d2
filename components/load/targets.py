"""Features that batches return apart from the others: labels and the weight of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.load.columns import FeatureSpec

Label = str | Sequence[str] | None


@dataclass(frozen=True)
class Targets:
    """Names of the label or labels, and of the weight. A batch is (features, label) or (features, label, weight)."""

    label: str | tuple[str, ...] | None = None
    weight: str | None = None

    @classmethod
    def of(cls, label: Label, weight: str | None, schema: Mapping[str, FeatureSpec]) -> Targets:
        """Check the arguments of a call. Raises InfeedError if `weight` does not name one number for each row.

        Its shape is `()` or `(1,)`.
        """
        labels = tuple(label) if isinstance(label, Collection) and not isinstance(label, str) else label
        if isinstance(labels, tuple) and (not labels or len(set(labels)) < len(labels)):
            raise InfeedError(f"label is {label!r}", where="label", do="name each label once")
        if weight is not None and (labels is None or weight in cls(labels).names):
            raise InfeedError(f"weight is {weight!r}, and label is {label!r}", where="weight", do="set label as well")
        spec = None if weight is None else schema.get(weight)
        if spec and (spec.shape not in ((), (1,)) or spec.type == "bytes"):
            what = f"feature {weight!r} is {spec.type} {spec.shape}"
            raise InfeedError(what, where="weight", do="name a feature of one number for each row")
        return cls(labels, weight)

    @property
    def names(self) -> Collection[str]:
        labels = self.label if isinstance(self.label, tuple) else () if self.label is None else (self.label,)
        return [*labels, *([] if self.weight is None else [self.weight])]

    def split(self, batch: dict[str, Any], as_weight: Any, present: Any = None) -> Any:
        """Take the targets out of a batch.

        Args:
          as_weight: converts the weights to float32 [batch].
          present: float32 [batch], 0 for rows that pad the batch, or None. Without a label, it is a feature.
        """
        if self.label is None:
            return batch if present is None else {**batch, PRESENT: present}
        if missing := [name for name in self.names if name not in batch]:
            do = "return the labels and the weight, too"
            raise InfeedError(f"the function returned no feature {missing[0]!r}", where="infeed.load(...).map", do=do)
        label = (
            {name: batch.pop(name) for name in self.label} if isinstance(self.label, tuple) else batch.pop(self.label)
        )
        weight = None if self.weight is None else as_weight(batch.pop(self.weight))
        if present is not None:
            weight = present if weight is None else weight * present
        return (batch, label) if weight is None else (batch, label, weight)


PRESENT = "sample_weight"  # feature of the weights of a padded batch without a label
