"""Labels, predictions and weights of whole batches, by the rules of TFMA's `to_label_prediction_example_weight`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class BeyondError(Exception):
    """Only TFX's own executor can do this. The message gives the reason."""


@dataclass(frozen=True)
class Pairs:
    """Labels and predictions of some rows."""

    labels: Array  # [rows, classes] like the predictions, or class indices [rows, 1]
    predictions: Array  # [rows, classes], with one class for a number or a probability
    weights: Array  # [rows, 1], or [rows, classes] in flat pairs


@dataclass(frozen=True)
class Observed:
    """Values of each row of a batch, for one model."""

    rows: int
    labels: Array | None  # [rows, 1 or classes]. None if no metric needs them
    predictions: Array | None  # [rows, classes]. None if no metric needs them
    weights: Array | None  # [rows]. None if the rows have no weights
    outputs: Mapping[str, Observed] = field(default_factory=dict)  # values by output, for a model with several

    def of(self, output: str) -> Observed:
        """Return the values of an output of a model with several. The only output has the name ""."""
        return self.outputs[output] if output else self


def with_all_classes(observed: Mapping[str, Observed]) -> dict[str, Observed]:
    """Return the rows of all models. Sets of classes also have the classes that only the first model knows.

    An earlier model predicts 0 for these, so it misses them. Its labels of them are spread over the new columns,
    because a mean over the classes counts those with rows.
    """
    first = next(iter(observed.values()))
    return {name: _with_classes_of(first, one) for name, one in observed.items()}


def _with_classes_of(first: Observed, one: Observed) -> Observed:
    if one.outputs:
        one = replace(
            one, outputs={name: _with_classes_of(first.outputs[name], its) for name, its in one.outputs.items()}
        )
    if first.labels is None or one.labels is None or one.predictions is None:
        return one
    missing = first.labels.shape[1] - one.labels.shape[1]
    if missing <= 0:
        return one
    unknown = first.labels.sum(axis=1) - one.labels.sum(axis=1)
    is_one = (np.arange(missing) - np.arange(one.rows)[:, np.newaxis]) % missing < unknown[:, np.newaxis]
    labels = np.concatenate([one.labels, is_one.astype(one.labels.dtype)], axis=1)
    zeros = np.zeros(is_one.shape, one.predictions.dtype)
    return replace(one, labels=labels, predictions=np.concatenate([one.predictions, zeros], axis=1))


@dataclass(frozen=True)
class Subject:
    """Model and classes that a computation of TFMA measures."""

    model: str  # name of the model, or "" if there is only one
    sub_key: Any  # TFMA's SubKey: one class or the top classes. None for the whole output
    weighted: bool
    output: str = ""  # name of the output, or "" if the model has only one

    @classmethod
    def of(cls, settings: Any) -> Subject:
        """Return the subject of a combiner. Raise BeyondError for an average over classes."""
        given = vars(settings)
        key = given.get("key") or given.get("metric_key") or settings
        name, output, sub_key = (getattr(key, one, None) for one in ("model_name", "output_name", "sub_key"))
        if given.get("aggregation_type") or given.get("class_weights"):
            raise BeyondError("metrics are averaged over classes (aggregate)")
        return cls(name or "", sub_key, bool(settings.example_weighted), output or "")

    def pairs(self, observed: Mapping[str, Observed], *, whole: bool = False) -> Pairs:
        """Return the pairs of a batch, [rows, ...]. `whole` ignores the selection of classes."""
        mine = observed[self.model].of(self.output)
        assert mine.labels is not None, "the plan determines which metrics need labels"
        assert mine.predictions is not None, "and predictions"
        pairs = Pairs(mine.labels, mine.predictions, self.weights(observed)[:, None])
        return pairs if whole or self.sub_key is None else _chosen(pairs, self.sub_key)

    def weights(self, observed: Mapping[str, Observed]) -> Array:
        """Return the weights, [rows]. They are 1 unless the metric is weighted and the rows have weights."""
        mine = observed[self.model]
        return np.ones(mine.rows) if not self.weighted or mine.weights is None else mine.weights


def flat(pairs: Pairs) -> Pairs:
    """Return pairs for each class: all three arrays [rows, classes]."""
    labels = dense_labels(pairs)
    return Pairs(labels, pairs.predictions, np.broadcast_to(pairs.weights, labels.shape))


def dense_labels(pairs: Pairs) -> Array:
    """Return labels [rows, classes]: unchanged, or one-hot from class indices. -1 becomes zeros."""
    if pairs.labels.shape == pairs.predictions.shape:
        return pairs.labels
    if pairs.labels.shape[1] != 1:
        raise BeyondError(f"a row has {pairs.labels.shape[1]} labels but {pairs.predictions.shape[1]} predictions")
    from tensorflow_model_analysis.metrics import metric_util

    classes = pairs.predictions.shape[1]
    if (row := unknown_class(pairs.labels, classes)) is not None:  # TFMA treats -2 as the last class
        raise ValueError(is_unknown(pairs.labels[row, 0], classes))
    found: Array = metric_util.one_hot(pairs.labels, pairs.predictions)
    return found


def unknown_class(labels: Array, classes: int) -> int | None:
    """Return the first row whose class index is unknown to the model. -1 marks a class without training rows."""
    if labels.shape[1] != 1 or classes < 2:
        return None
    outside = (labels[:, 0] < -1) | (labels[:, 0] >= classes)
    return int(outside.argmax()) if outside.any() else None


def is_unknown(label: object, classes: int) -> str:
    return f"the label {label} is a class that the model does not know: it predicts {classes} classes, from 0"


def fractional(pairs: Pairs) -> tuple[Array, Array]:
    """Return the weights of labels 0 and 1 in flat pairs, [rows, classes] each. Label 0.3 has weight 0.3 for 1.

    Raise ValueError for a label outside 0 to 1.
    """
    labels = pairs.labels
    outside = labels[~((labels >= 0) & (labels <= 1))]
    if outside.size:
        raise ValueError(f"a label is {outside.flat[0]}, but the metric needs probabilities")
    return pairs.weights * (1 - labels), pairs.weights * labels


def _chosen(pairs: Pairs, sub_key: Any) -> Pairs:
    number, classes = sub_key.class_id, pairs.predictions.shape[1]
    if number is not None:
        if not 0 <= number < classes:
            raise ValueError(f"class {number} is requested, but the model has classes 0 to {classes - 1}")
        is_sparse = pairs.labels.shape[1] != classes
        labels = (pairs.labels == number).astype(np.int64) if is_sparse else pairs.labels[:, [number]]
        return replace(pairs, labels=labels, predictions=pairs.predictions[:, [number]])
    k = sub_key.k or sub_key.top_k
    if k is None:
        raise BeyondError(f"metrics are about {sub_key}")
    if classes < k:
        raise ValueError(f"the {k} most likely classes are requested, but the model has {classes} classes")
    from tensorflow_model_analysis.metrics import metric_types, metric_util

    # TFMA selects, because its versions rank ties and NaN differently.
    given = pairs.labels if sub_key.k is None else dense_labels(pairs)
    rows = metric_types.StandardMetricInputs(labels=given, predictions=pairs.predictions, example_weights=np.ones(1))
    [chosen] = metric_util.to_label_prediction_example_weight(rows, sub_key=sub_key, flatten=False, squeeze=False)
    return replace(pairs, labels=chosen[0], predictions=chosen[1])
