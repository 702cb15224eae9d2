"""Declared features beside a function of the user's own: one preprocessing function, for tft.

The constants of the features are known by then, so all that tft has to analyse is the user's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_transform as tft

from infeed.components.errors import InfeedError
from infeed.components.transform.columns import Found, outputs_of
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import check_features
from infeed.components.transform.tables import GraphTables

Tensors = dict[str, Any]  # name -> tf.Tensor, tf.SparseTensor or tf.RaggedTensor
Function = Callable[[Tensors], Tensors]


def make_preprocessing_fn(features: Sequence[Feature], own: Function, found: Found, vocabularies: str) -> Function:
    """One preprocessing function of the declared features and the user's own, which gets the same raw columns.

    Args:
      found: what the features have to know of the training rows.
      vocabularies: folder for their files, which tft copies into the graph.

    Raises, when it is called:
      InfeedError: a feature names a column that the schema lacks, or two features have one name.
    """

    def preprocessing_fn(inputs: Tensors) -> Tensors:
        check_features(features, inputs)
        os.makedirs(vocabularies, exist_ok=True)  # wherever Beam runs it
        tables = GraphTables(vocabularies)
        declared = outputs_of(features, inputs, found, tables)
        for name, file in tables.assets.items():
            tft.annotate_asset(name, file)
        return _merged(declared, own(dict(inputs)))

    return preprocessing_fn


def _merged(declared: Tensors, own: Tensors) -> Tensors:
    both = sorted(declared.keys() & own.keys())
    if both:
        raise InfeedError(
            f"both the features and the preprocessing function give {', '.join(both)}",
            where="Transform",
            do="rename one of them: a feature by its option output",
        )
    return {**declared, **own}
