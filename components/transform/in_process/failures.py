"""Errors of a user's function on data: its line, the operation, and example values."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_transform import graph_tools

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, records
from infeed.components.dataset.decode import decode_example
from infeed.components.seams import tensorflow as tensorflow_seam

_SHOWN = 3  # values shown per column
_LONGEST = 40  # maximum characters of a value


class FailedBatchError(Exception):
    """A graph rejected a batch. Workers raise this error, and the process that traced the graph explains it."""

    def __init__(self, text: str, samples: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(text, samples)
        self.text, self.samples = text, samples

    @classmethod
    def of(cls, error: tf.errors.OpError, batch: Mapping[str, Any]) -> FailedBatchError:
        flat = {name: getattr(one, "flat_values", getattr(one, "values", one)) for name, one in batch.items()}
        shown = {name: tf.reshape(values, [-1])[:_SHOWN].numpy().tolist() for name, values in flat.items()}
        return cls(str(error), shown)


def explain(failed: FailedBatchError, graph: Any, inputs: Mapping[str, Any]) -> InfeedError:
    """Return an error with the user's line that created the failed operation, and the columns that it depends on."""
    # Only this process has the trace. Its operations record the lines of the user's code.
    operation = tensorflow_seam.failed_operation(failed.text, graph)
    place = user_code.users_line(operation.traceback) if operation is not None else None
    columns = graph_tools.get_dependent_inputs(graph, inputs, list(operation.inputs)) if operation is not None else {}
    told = [place or "preprocessing_fn"]
    if operation is not None:
        told.append(f"operation {operation.type} ({operation.name})")
    told += [_sample(name, failed.samples[name]) for name in columns or failed.samples if name in failed.samples]
    return InfeedError(
        f"preprocessing_fn fails on the data: {tensorflow_seam.message_of(failed.text)}",
        where="; ".join(told),
        do="correct the data, or replace such values in the function first",
    )


def with_sample(error: InfeedError, patterns: Sequence[str]) -> InfeedError:
    """Return a tracing error with example values, from `patterns`, of the columns that the user's line names."""
    first = _first_values(patterns).items()
    named = [(name, values) for name, values in first if f"'{name}'" in error.where or f'"{name}"' in error.where]
    told = [_sample(name, values) for name, values in named if f"column {name!r} holds" not in error.where]
    return InfeedError(error.what, where="; ".join([error.where, *told]), do=error.do)


def _first_values(patterns: Sequence[str]) -> dict[str, list[Any]]:
    """Return example values of each column. Empty if the records are not tf.Examples."""
    paths = (file.path for pattern in patterns for file in files.glob(*posixpath.split(pattern)))
    found: dict[str, list[Any]] = {}
    for record in itertools.islice(itertools.chain.from_iterable(map(records.read_records, paths)), _SHOWN):
        try:
            features = decode_example(record).features
        except ValueError:
            return {}
        for name, feature in features.items():
            found.setdefault(name, []).extend(feature.values[:_SHOWN])
    return found


def _sample(name: str, values: Iterable[Any]) -> str:
    words = [repr(value) for value in itertools.islice(values, _SHOWN)]
    shown = ", ".join(word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..." for word in words)
    return f"column {name!r} holds {shown or 'nothing'}"
