"""Options of the model report, which Evaluator writes in addition to its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infeed.components.base import checks

STEM = "model_report"
HTML, JSON = f"{STEM}.html", f"{STEM}.json"  # file names in the folder of the evaluation


@dataclass(frozen=True)
class ModelReport:
    """Options of a model report that are not in the eval config.

    Attributes:
      task: task of the model. "classification" expects the probability of each class, or of the second of two classes.
        "multilabel" expects that of each class, and the labels as 0 or 1 for each class.
      classes: class names in index order. Without names, the report shows indices.
      positive: index of the class whose curves the report shows, if there are two.
      threshold: probability of the second of two classes, or of each class of a set, above which the model predicts
        this class.
      metrics: names of the metrics in the report. The first one decides. Defaults to all.
      scored_class: class of recall, precision and F1. None if they are means over the classes.
      split_by: columns by whose values rows were kept in one split. Intervals resample these groups instead of rows.
      shown_classes: indices of the classes with curves, if there are more than two. Defaults to the first ten.
      output: output of the report, if the model has several.
      file: name of its files, without suffix.
      beat_guess: withhold the blessing unless the 95 % interval of the first metric is better than a guess.
    """

    task: Literal["classification", "regression", "multilabel"]
    classes: tuple[str, ...] = ()
    positive: int = 1
    threshold: float = 0.5
    metrics: tuple[str, ...] = ()
    scored_class: int | None = None
    split_by: tuple[str, ...] = ()
    shown_classes: tuple[int, ...] = ()
    beat_guess: bool = False
    output: str = ""
    file: str = STEM

    def __post_init__(self) -> None:
        checks.as_tuples(self, "classes", "metrics", "split_by", "shown_classes")
        checks.check_fields(self)
        checks.require(0 < self.threshold < 1, self, "threshold", "use a probability between 0 and 1")
        checks.require(self.positive in (0, 1), self, "positive", "use 0 or 1")

    def name_of(self, number: int) -> str:
        if number < 0:
            return "a class without training rows"
        return self.classes[number] if number < len(self.classes) else f"class {number}"
