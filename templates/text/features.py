"""What becomes of the sentences, decided from a survey of the data.

A survey looks at the rows before anything is ingested, and tells which columns hold sentences. A list of your own needs
no survey at all: `return [sentence("review"), Label("stars")]`.

This file is read together with the config, before TensorFlow is loaded, so that you hear of a mistake within seconds.
Hence it does not import Keras, and the model has a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infeed.components import Feature, InfeedError, Label, LowerCase, StripAccents, Tokens, Vocabulary
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey

# The columns to read, such as ("title", "review"); none named: all that hold sentences.
TEXTS: Sequence[str] = ()

# Words, then pairs of neighbors, for "not good" says something else than "not" and "good".
STEPS = (LowerCase(), StripAccents(), Tokens(ngrams=(1, 2)))
# Of a row; words come first, so that a longer text loses its pairs before its words.
LENGTH = 128
# The most frequent words and pairs. Those that occur once teach nothing, but share an index, which stands for all that
# the model will meet later and has never seen.
SIZE, MIN_COUNT = 20_000, 2


def features(survey: TableSurvey) -> list[Feature]:
    """Return word indices of each text, and the label. Add features of other columns, such as `ZScore("age")`.

    The survey has the `rows`, the `task`, the `label` with its `classes`, and `columns`, of which each has a `name`,
    its `type` and the `features` that `infer_features` proposes for it.
    """
    texts = TEXTS or [column.name for column in survey.columns if _holds_sentences(column)]
    if not texts:
        others = ", ".join(f"{c.name} ({c.useless})" if c.useless else c.name for c in survey.columns)
        raise InfeedError(
            f"none of the columns holds sentences: {others or 'there is no other column'}",
            where="features.py",
            do="name those to read in TEXTS, keep one that is left out by --keep, or use the template tabular",
        )
    return [*map(sentence, texts), Label(survey.label.name, task=survey.task)]


def sentence(column: str) -> Feature:
    """int64 [LENGTH], filled up by 0. With the extra `text`, `Subwords` may take its place: see README.md."""
    return Vocabulary(column, size=SIZE, min_count=MIN_COUNT, clean=STEPS, length=LENGTH)


def _holds_sentences(column: ColumnSurvey) -> bool:
    return any(isinstance(step, Tokens) for feature in column.features for step in feature.steps)


def hparams(survey: TableSurvey) -> dict[str, Any]:
    """Return the scale of the label, so that a regression starts from the mean instead of 0.

    `build_model` finds them in `spec.hparams`, and takes `width` and `learning_rate` from there too.
    """
    return {"label_mean": survey.label.mean, "label_std": survey.label.std} if survey.task == "regression" else {}
