"""What becomes of each column, decided from a survey of the data.

A survey looks at the rows before anything is ingested. What you know better goes into `OWN`, and the survey decides the
other columns. A list of your own needs no survey at all: `return [ZScore("age"), Vocabulary("city"), Label("bought")]`.

This file is read together with the config, before TensorFlow is loaded, so that you hear of a mistake within seconds.
Hence it does not import Keras, and the model has a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infeed.components import Feature, Label
from infeed.pipelines.surveys import TableSurvey

# Column -> the features to make of it, in place of those that are proposed; an empty list leaves the column out.
#   "age": [ZScore("age")]
#   "income": [Bucketize("income", buckets=10), Log("income", output="log_income")]
#   "city": [Vocabulary("city", size=1000)]
#   "rooms": [Fill("rooms", 0)], the number as it is
#   "customer": []
OWN: Mapping[str, Sequence[Feature]] = {}


def features(survey: TableSurvey) -> list[Feature]:
    """What is made of each column, and the label; columns that can teach nothing are left out.

    The survey has the `rows`, the `task`, the `label` with its `classes`, and `columns`. Of each column it says:

      name, type   "int", "float" or "bytes"
      missing      cells that are empty, or hold no finite number
      distinct     how many values differ; None where there are more than 10,000
      mean, std    of numbers
      is_list      whether a row may hold several values
      commonest    rows that hold the commonest value
      features     what `infer_features` proposes for it
      useless      why it proposes nothing
      leak         how it gives the label away; None if it does not
    """
    proposed = [feature for column in survey.columns if column.name not in OWN for feature in column.features]
    own = [feature for of_column in OWN.values() for feature in of_column]
    return [*proposed, *own, Label(survey.label.name, task=survey.task)]


def hparams(survey: TableSurvey) -> dict[str, Any]:
    """The label's scale, so that a regression starts from the mean instead of from 0.

    `build_model` finds them in `spec.hparams`, and takes `units` and `learning_rate` from there too.
    """
    return {"label_mean": survey.label.mean, "label_std": survey.label.std} if survey.task == "regression" else {}
