"""Features of a table, chosen from a survey of the data.

The survey reads the rows before ingest, and proposes features for each column. `OWN` replaces these proposals. A fixed
list needs no survey: `return [ZScore("age"), Vocabulary("city"), Label("bought")]`.

The command reads this file with the config, before it loads TensorFlow, so that it reports a mistake within seconds.
For the same reason this file does not import Keras, and the model is in a separate file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infeed.components import Feature, Label, Vocabulary, ZScore
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey

# Column -> its features, which replace the proposed ones. An empty list skips the column.
#   "age": [ZScore("age")]
#   "income": [Bucketize("income", buckets=10), Log("income", output="log_income")]
#   "city": [Vocabulary("city", size=1000)]
#   "rooms": [Fill("rooms", 0)]  # unscaled
#   "customer": []
OWN: Mapping[str, Sequence[Feature]] = {}

# Each number is encoded in PLACES intervals, unless the table has more than MOST_ENCODED columns of numbers.
PLACES, MOST_ENCODED = 64, 128
# An integer column also becomes a vocabulary if it has more than PLACES values, at most MOST_WORDS, and at least
# SHARED rows per value on average. The model can then learn a weight per value, such as a day or a shop.
SHARED, MOST_WORDS = 8, 2_000


def features(survey: TableSurvey) -> list[Feature]:
    """Return the features of each useful column, and the labels.

    The survey has the `rows`, the `labels`, each with its `column`, `task` and `classes`, and the other `columns`. Each
    column has:

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
    return [*proposed, *words, *own, *(Label(label.column.name, task=label.task) for label in survey.labels)]


def _are_words(column: ColumnSurvey, survey: TableSurvey) -> bool:
    """Report whether a column of integers also becomes a vocabulary."""
    is_number = column.type == "int" and any(type(feature) is ZScore for feature in column.features)
    return is_number and PLACES < (column.distinct or 0) <= min(MOST_WORDS, survey.rows // SHARED)


def hparams(survey: TableSurvey) -> dict[str, Any]:
    """Return the boundaries of encoded numbers, and mean and deviation of the labels of regressions.

    `build_model` reads these values from `spec.hparams`, as well as `units`, `embedding_width` and `learning_rate`.
    """
    numbers = [label.column for label in survey.labels if label.task == "regression"]
    scales = {column.name: [column.mean, column.std] for column in numbers}
    return {"boundaries": boundaries(survey), "places": PLACES, **({"scales": scales} if scales else {})}


def boundaries(survey: TableSurvey) -> dict[str, list[float]]:
    """Return the scaled quantiles of each column that becomes a ZScore, by the name of the feature.

    If there are more than MOST_ENCODED such columns, the result is empty, because encodings would need too many
    weights.
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
