"""Options of the model report, which Evaluator writes beside its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infeed.components.base import checks

HTML, JSON = "model_report.html", "model_report.json"  # in the folder of the evaluation


@dataclass(frozen=True)
class ModelReport:
    """What a model report needs to know of the model, beyond the eval config.

    Attributes:
      task: classification expects the probability of each class, or of the second of two classes.
      classes: names of the classes in the order of their index. Without names, the report shows the index.
      positive: index of the class whose curves the report shows, if there are two.
      threshold: probability of the second of two classes above which the model predicts this class.
      metrics: names of the metrics that the report lists, first the one that decides; all by default.
      scored_class: index of the class of recall, precision and F1; None if they are means over the classes.
      split_by: columns whose equal values keep rows in one split. Intervals resample these groups instead of rows.
      shown_classes: indices of the classes with curves, if there are more than two; the first ten by default.
      beat_guess: withhold the blessing unless the 95 % interval of the first metric is better than a guess.
    """

    task: Literal["classification", "regression"]
    classes: tuple[str, ...] = ()
    positive: int = 1
    threshold: float = 0.5
    metrics: tuple[str, ...] = ()
    scored_class: int | None = None
    split_by: tuple[str, ...] = ()
    shown_classes: tuple[int, ...] = ()
    beat_guess: bool = False

    def __post_init__(self) -> None:
        checks.as_tuples(self, "classes", "metrics", "split_by", "shown_classes")
        checks.check_fields(self)
        checks.require(0 < self.threshold < 1, self, "threshold", "use a probability between 0 and 1")
        checks.require(self.positive in (0, 1), self, "positive", "use 0 or 1")

    def name_of(self, number: int) -> str:
        if number < 0:
            return "a class without training rows"
        return self.classes[number] if number < len(self.classes) else f"class {number}"
