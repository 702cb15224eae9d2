"""Features of sentences, chosen from a survey of the data.

The survey reads the rows before ingest, and finds the columns that hold sentences. A fixed list needs no survey:
`return [sentence("review"), Label("stars")]`.

The command reads this file with the config, before it loads TensorFlow, so that it reports a mistake within seconds.
For the same reason this file does not import Keras, and the model is in a separate file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infeed.components import Feature, InfeedError, Label, LowerCase, StripAccents, Tokens, Vocabulary
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey

# Columns to read, such as ("title", "review"). If empty, all columns that hold sentences.
TEXTS: Sequence[str] = ()

# Words, then pairs of adjacent words, because "not good" differs from "not" and "good".
STEPS = (LowerCase(), StripAccents(), Tokens(ngrams=(1, 2)))
# Indices per row. Words come first, so that longer texts lose pairs before words.
LENGTH = 128
# The vocabulary has the SIZE most frequent words and pairs. Rarer ones share the index of unknown words, so that the
# model also learns a vector for unknown words.
SIZE, MIN_COUNT = 20_000, 2


def features(survey: TableSurvey) -> list[Feature]:
    """Return word indices of each text, and the labels. Add features of other columns, such as `ZScore("age")`.

    The survey has the `rows`, the `labels`, each with its `column`, `task` and `classes`, and the other `columns`. Each
    column has a `name`, a `type`, and the `features` that `infer_features` proposes.
    """
    texts = TEXTS or [column.name for column in survey.columns if _holds_sentences(column)]
    if not texts:
        others = ", ".join(f"{c.name} ({c.useless})" if c.useless else c.name for c in survey.columns)
        raise InfeedError(
            f"none of the columns contains sentences: {others or 'there is no other column'}",
            where=f"columns other than the label {survey.label.name!r}",
            do="keep an excluded text column with --keep COLUMN, list columns in TEXTS in features.py of your "
            "own project (infeed new text), or use the template tabular",
        )
    return [*map(sentence, texts), *(Label(label.column.name, task=label.task) for label in survey.labels)]


def sentence(column: str) -> Feature:
    """Return a feature of word indices: int64 [LENGTH], padded with 0."""
    return Vocabulary(column, size=SIZE, min_count=MIN_COUNT, clean=STEPS, length=LENGTH)


def _holds_sentences(column: ColumnSurvey) -> bool:
    return any(isinstance(step, Tokens) for feature in column.features for step in feature.steps)


def hparams(survey: TableSurvey) -> dict[str, Any]:
    """Return mean and deviation of the labels of regressions, so that training starts from the mean.

    `build_model` reads these values from `spec.hparams`, as well as `width` and `learning_rate`.
    """
    numbers = [label.column for label in survey.labels if label.task == "regression"]
    return {"scales": {column.name: [column.mean, column.std] for column in numbers}} if numbers else {}
