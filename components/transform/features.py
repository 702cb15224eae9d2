"""The declared features there are, as data that travels in JSON and YAML, and what is checked before anything starts.

What each gives for a batch of rows is said at its class, in `kinds`; what they have in common, in `feature.py`. A value
is missing where the row has none, and where it is NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from infeed.components import schema
from infeed.components.annotations import Tagged
from infeed.components.errors import InfeedError
from infeed.components.transform.feature import Clean, Feature, Step
from infeed.components.transform.kinds.clean import Fill, IsOutlier
from infeed.components.transform.kinds.encode import Bucketize, CountEncoding, Cross, Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.image import DecodeImage
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import Cycle, Log, MinMax, Power, Robust, ZScore
from infeed.components.transform.kinds.text import BagOfWords, Subwords
from infeed.components.transform.kinds.vectors import PretrainedVectors

_TYPE_WORDS = {"int": "whole numbers", "float": "numbers with fractions", "bytes": "text"}
AnyFeature = Annotated[
    ZScore
    | MinMax
    | Robust
    | Log
    | Cycle
    | Power
    | Vocabulary
    | OneHot
    | Hash
    | Bucketize
    | CountEncoding
    | Cross
    | Fill
    | IsOutlier
    | BagOfWords
    | PretrainedVectors
    | Subwords
    | DecodeImage
    | Label,
    Tagged("kind"),
]


def features_to_json(features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Features as plain data for JSON and YAML; `features_from_json` gives equal features back."""
    check_outputs(features)
    return [schema.to_plain(feature, defaults=False) for feature in features]


def features_from_json(items: Iterable[Mapping[str, Any]], where: str = "features") -> list[Feature]:
    """Features from plain data, each item with its "kind": {"kind": "z_score", "column": "age"}.

    Raises:
      InfeedError: a kind or an option that does not exist, an option that is missing or out of range, or two features
        with one output name.
    """
    kind: Any = tuple[AnyFeature, ...]
    features: list[Feature] = list(schema.read(kind, list(items), where))
    check_outputs(features)
    return features


def check_features(features: Sequence[Feature], columns: Iterable[str]) -> None:
    """Checks that every feature's column is among the data's `columns` and that no two features share an output name.

    Raises:
      InfeedError: names the column, the nearest name there is and all the names there are.
    """
    check_outputs(features)
    there = set(columns)
    for feature in features:
        for column in feature.inputs:
            if column not in there:
                known = sorted(there)
                raise InfeedError(
                    f"no column {column!r} in the data{schema.nearest(column, known)}",
                    where=f"{type(feature).__name__} of column {column!r}; the columns are: {', '.join(known)}",
                    do="name one of these columns in the feature, or take the feature out",
                )


def check_types(features: Sequence[Feature], types: Mapping[str, str]) -> None:
    """Checks that every feature can be made of its columns; `types` has "int", "float" or "bytes" by column.

    Raises:
      InfeedError: names the feature or the step of its cleaning, the column and its type, and what it takes.
    """
    for feature in features:
        for column in feature.columns:
            found = types[column]
            for step in (*feature.steps, feature):
                _check_type(step, feature, column, found)
                found = step.gives(found) if isinstance(step, Clean) else found
        if feature.key and types[feature.key] == "float":
            raise _wrong_type(feature, feature, feature.key, "float", ("int", "bytes"))


def _check_type(step: Step, feature: Feature, column: str, found: str) -> None:
    if found not in step.takes:
        raise _wrong_type(step, feature, column, found, step.takes)


def _wrong_type(step: Step, feature: Feature, column: str, found: str, takes: Sequence[str]) -> InfeedError:
    wanted = " or ".join(_TYPE_WORDS[name] for name in takes)
    return InfeedError(
        f"{type(step).__name__} needs {wanted}, but column {column!r} holds {_TYPE_WORDS[found]}",
        where=f"{feature}",
        do="use another kind of feature for this column, or correct its type in the data",
    )


def check_outputs(features: Sequence[Feature]) -> None:
    """Raises InfeedError where two features give the same output name."""
    seen: dict[str, Feature] = {}
    for feature in features:
        first = seen.setdefault(feature.output_name, feature)
        if first is not feature:
            raise InfeedError(
                f"two features are both called {feature.output_name!r}",
                where=f"{first} and {feature}",
                do="give one of them another name with output=",
            )
