"""List of declared features, their conversion to JSON and YAML, and early checks.

The classes in `kinds` document their output, and `feature.py` documents the common options. A value is missing if the
row has none, or it is NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from infeed.components.base import schema, user_code
from infeed.components.base.annotations import Tagged
from infeed.components.base.errors import InfeedError
from infeed.components.transform.feature import Clean, Feature, Step
from infeed.components.transform.kinds.clean import Fill
from infeed.components.transform.kinds.encode import Bucketize, Cross, Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.image import DecodeImage
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import Cycle, Log, MinMax, Robust, ZScore
from infeed.components.transform.kinds.text import BagOfWords
from infeed.components.transform.kinds.vectors import PretrainedVectors

_TYPE_WORDS = {"int": "whole numbers", "float": "numbers with fractions", "bytes": "text"}
_Scaling = ZScore | MinMax | Robust | Log | Cycle
_Encoding = Vocabulary | OneHot | Hash | Bucketize | Cross
_Other = Fill | BagOfWords | PretrainedVectors | DecodeImage | Label
AnyFeature = Annotated[_Scaling | _Encoding | _Other, Tagged("kind")]


def features_to_json(features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Convert features to plain data for JSON and YAML. `features_from_json` restores equal features.

    Raises:
      InfeedError: two features have the same output name, or another process cannot import a user's class.
    """
    check_outputs(features)
    return [{"kind": _kind_of(one), **schema.to_plain(one, defaults=False)} for one in features]


def features_from_json(items: Iterable[Mapping[str, Any]], where: str = "features") -> list[Feature]:
    """Create features from plain data, such as {"kind": "z_score", "column": "age"}.

    A kind with a colon names a class of the user, derived from `Feature`: `features.py:Asinh`, `package.module:Asinh`.

    Raises:
      InfeedError: a kind or an option does not exist, an option is missing or out of range, or two features have the
        same output name.
    """
    features = [_read(item, f"{where}[{number}]") for number, item in enumerate(items)]
    check_outputs(features)
    return features


def own_kinds(features: Iterable[Feature]) -> list[str]:
    """Return the names of the users' classes among the features."""
    return sorted({kind for kind in map(_kind_of, features) if ":" in kind})


def _kind_of(feature: Feature) -> str:
    return feature.kind or user_code.name_of(type(feature))


def _read(item: Any, where: str) -> Feature:
    kind: Any = AnyFeature
    if isinstance(item, Mapping) and ":" in str(item.get("kind")):
        item = dict(item)
        kind = user_code.load_class(item.pop("kind"), f"{where}.kind", Feature)
    feature: Feature = schema.read(kind, item, where)
    return feature


def check_features(features: Sequence[Feature], columns: Iterable[str]) -> None:
    """Raise InfeedError if a feature's column is not in `columns`, or two features have the same output name."""
    check_outputs(features)
    there = set(columns)
    for feature in features:
        for column in feature.inputs:
            if column not in there:
                known = sorted(there)
                raise InfeedError(
                    f"there is no column {column!r} in the data{schema.nearest(column, known)}",
                    where=f"{type(feature).__name__} of column {column!r}; the columns are: {', '.join(known)}",
                    do="use one of these columns in the feature, or remove the feature",
                )


def check_types(features: Sequence[Feature], types: Mapping[str, str]) -> None:
    """Raise InfeedError if a feature or step does not support the type of its column: "int", "float" or "bytes"."""
    for feature in features:
        for column in feature.columns:
            found = types[column]
            for step in (*feature.steps, feature):
                if found not in step.takes:
                    raise _wrong_type(step, feature, column, found, step.takes)
                found = step.gives(found) if isinstance(step, Clean) else found
        if feature.key and types[feature.key] == "float":
            raise _wrong_type(feature, feature, feature.key, "float", ("int", "bytes"))


def _wrong_type(step: Step, feature: Feature, column: str, found: str, takes: Sequence[str]) -> InfeedError:
    wanted = " or ".join(_TYPE_WORDS[name] for name in takes)
    return InfeedError(
        f"{type(step).__name__} needs {wanted}, but column {column!r} holds {_TYPE_WORDS[found]}",
        where=f"{feature}",
        do="use another kind of feature for this column, or correct its type in the data",
    )


def check_outputs(features: Sequence[Feature]) -> None:
    """Raise InfeedError if two features have the same output name."""
    seen: dict[str, Feature] = {}
    for feature in features:
        first = seen.setdefault(feature.output_name, feature)
        if first is not feature:
            do = "rename one of them with output="
            raise InfeedError(f"two features are named {feature.output_name!r}", where=f"{first} and {feature}", do=do)
