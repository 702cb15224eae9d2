"""What becomes of each column, decided from a survey of the data.

A survey looks at the rows before anything is ingested. What you know better goes into `OWN`, and the survey decides the
other columns. A list of your own needs no survey at all: `return [ZScore("age"), Vocabulary("city"), Label("bought")]`.

This file is read together with the config, before TensorFlow is loaded, so that you hear of a mistake within seconds.
Hence it does not import Keras, and the model has a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infeed.components import Feature, Label, Vocabulary, ZScore
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey

# Column -> the features to make of it, in place of those that are proposed; an empty list leaves the column out.
#   "age": [ZScore("age")]
#   "income": [Bucketize("income", buckets=10), Log("income", output="log_income")]
#   "city": [Vocabulary("city", size=1000)]
#   "rooms": [Fill("rooms", 0)], the number as it is
#   "customer": []
OWN: Mapping[str, Sequence[Feature]] = {}

# Of each number the model gets an encoding with so many places, unless more columns than MOST_ENCODED hold numbers.
PLACES, MOST_ENCODED = 64, 128
# Whole numbers of more values than PLACES, which so many rows share on average, are words as well. The model can learn
# then what is special about each value, such as a day or a shop.
SHARED, MOST_WORDS = 8, 2_000


def features(survey: TableSurvey) -> list[Feature]:
    """Return the features of each useful column, and the label.

    The survey has the `rows`, the `task`, the `label` with its `classes`, and `columns`. Each column has:

      name, type   "int", "float" or "bytes"
      missing      number of empty cells and of non-finite numbers
      distinct     number of distinct values; None above 10,000
      mean, std    of numbers
      is_list      whether a row may hold several values
      commonest    number of rows with the most frequent value
      features     features that `infer_features` proposes
      useless      why it proposes none
      leak         how the column gives the label away; None if it does not
    """
    columns = [column for column in survey.columns if column.name not in OWN]
    proposed = [feature for column in columns for feature in column.features]
    words = [Vocabulary(column.name, output=f"{column.name}_word") for column in columns if _are_words(column, survey)]
    own = [feature for of_column in OWN.values() for feature in of_column]
    return [*proposed, *words, *own, Label(survey.label.name, task=survey.task)]


def _are_words(column: ColumnSurvey, survey: TableSurvey) -> bool:
    """Whether single values of a whole number are worth a weight of their own."""
    is_number = column.type == "int" and any(type(feature) is ZScore for feature in column.features)
    return is_number and PLACES < (column.distinct or 0) <= min(MOST_WORDS, survey.rows // SHARED)


def hparams(survey: TableSurvey) -> dict[str, Any]:
    """Return the boundaries of encoded numbers, and the scale of the label, so that a regression starts from the mean.

    `build_model` finds them in `spec.hparams`, and takes `units`, `embedding_width` and `learning_rate` from there too.
    """
    label = {"label_mean": survey.label.mean, "label_std": survey.label.std} if survey.task == "regression" else {}
    return {"boundaries": boundaries(survey), "places": PLACES, **label}


def boundaries(survey: TableSurvey) -> dict[str, list[float]]:
    """Quantiles of each column that becomes a ZScore, scaled likewise, by the name of the feature.

    A wider table gets none: its columns are too many for so many weights each.
    """
    columns = {column.name: column for column in survey.columns}
    scaled = [feature for feature in features(survey) if type(feature) is ZScore and feature.values == "one"]
    if len(scaled) > MOST_ENCODED:
        return {}
    found = {feature.output_name: _scaled_quantiles(columns[feature.column]) for feature in scaled if not feature.clean}
    return {name: points for name, points in found.items() if len(points) > 1}


def _scaled_quantiles(column: ColumnSurvey) -> list[float]:
    if column.statistics is None or not column.std:
        return []
    points = column.statistics.quantiles.at([place / PLACES for place in range(PLACES + 1)])
    return sorted({round((point - column.mean) / column.std, 4) for point in points})
