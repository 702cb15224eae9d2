"""Argument names of a model's signatures, derived from feature names.

TensorFlow compares argument names case-insensitively and accepts ASCII identifiers that begin with a letter. The
exported model stores feature names and argument names, and `infeed predict` maps between them.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from infeed.components.unique_names import UniqueNames

# Python rejects keywords as argument names, TensorFlow functions take `self`, and signatures that accept serialized
# tf.Examples take `examples`.
_RESERVED = frozenset([*keyword.kwlist, "self", "examples"])
_LONGEST = 200  # characters


def argument_names(features: Iterable[str]) -> dict[str, str]:
    """Map each feature name to a unique argument name. The result depends only on the set of features.

    Names that TensorFlow accepts are assigned first, so that they stay unchanged.
    """
    arguments = {feature: _accepted(feature) for feature in sorted(features)}
    unique = UniqueNames()
    for feature in sorted(arguments, key=lambda one: arguments[one] != one):  # stable: by name within both groups
        arguments[feature] = unique.take(arguments[feature])
    return arguments


def examples_argument(columns: Iterable[str]) -> str:
    """Return the argument name for serialized tf.Examples: `examples`, or `examples_2` if a column has that name.

    TensorFlow Model Analysis passes the column of the same name to an argument.
    """
    unique = UniqueNames()
    for column in sorted(columns):
        unique.take(column)
    return unique.take("examples")


def _accepted(feature: str) -> str:
    name = re.sub(r"\W", "_", feature[:_LONGEST], flags=re.ASCII)
    return name if name[:1].isalpha() and name not in _RESERVED else f"f_{name}"
