"""The names of the arguments of a model's signatures: those of `raw` are made from the names of the features.

TensorFlow compares the names of a signature's arguments without regard to case, and accepts ASCII identifiers that
begin with a letter. The data keep their names: the exported model holds both lists, and `infeed predict` reads them.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from infeed.components.unique_names import UniqueNames

# Python's callers cannot type a keyword as an argument, TensorFlow's functions take `self`, and `examples` is the
# argument of signatures that take serialized tf.Examples.
_RESERVED = frozenset([*keyword.kwlist, "self", "examples"])
_LONGEST = 200  # characters that an argument keeps of a name


def argument_names(features: Iterable[str]) -> dict[str, str]:
    """Feature name -> argument name, the same for the same set of features.

    A name that TensorFlow accepts comes first and keeps itself, so that no other feature takes it.
    """
    arguments = {feature: _accepted(feature) for feature in sorted(features)}
    unique = UniqueNames()
    for feature in sorted(arguments, key=lambda one: arguments[one] != one):  # stable: by name within both groups
        arguments[feature] = unique.take(arguments[feature])
    return arguments


def examples_argument(columns: Iterable[str]) -> str:
    """Name of the argument that takes serialized tf.Examples: `examples`, or `examples_2` if a column has that name.

    TensorFlow Model Analysis gives an argument the values of the column that has its name.
    """
    unique = UniqueNames()
    for column in sorted(columns):
        unique.take(column)
    return unique.take("examples")


def _accepted(feature: str) -> str:
    name = re.sub(r"\W", "_", feature[:_LONGEST], flags=re.ASCII)
    return name if name[:1].isalpha() and name not in _RESERVED else f"f_{name}"
