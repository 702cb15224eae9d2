"""A batch of serialized tf.Examples -> what a signature takes: the records themselves, or the features as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.example_types import item_counts
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions.batches import Batch, KnownColumn
from infeed.components.evaluation.predictions.saved_model import Signature

_DO = "ask a signature that takes serialized tf.Examples, or write the examples as the model takes them"


def check_inputs(signature: Signature, known: Mapping[str, KnownColumn], where: str) -> None:
    """The data have a column for each feature that the signature takes, of a type that fits.

    Raises:
      InfeedError: with the first that does not.
    """
    for name, spec in signature.inputs.items():
        if name not in known:
            do = f"{_DO}; the columns are {', '.join(map(repr, sorted(known)))}"
            raise InfeedError(f"the model takes {name!r}, and there is no such column", where=where, do=do)
        kind = known[name].type
        if (kind == "bytes") != (spec.dtype.name == "string") or (kind == "float" and not spec.dtype.is_floating):
            what = f"column {name!r} is {kind}, and the model takes {spec.dtype.name}"
            raise InfeedError(what, where=where, do=_DO)
        if known[name].some_missing and not _has_missing(spec):
            raise InfeedError(f"column {name!r} has rows without a value, and {_no_missing(spec)}", where=where, do=_DO)


def features_of(batch: Batch, signature: Signature) -> dict[str, Any]:
    """What `signature` is called with.

    Of features, a missing number is NaN and missing text is empty, as infeed's Trainer exports its signature `raw`.

    Raises:
      InfeedError: a row has no value where the model takes whole numbers, or not as many as it takes.
    """
    if signature.takes_examples:
        return {name: list(batch.records) for name in signature.inputs}
    return {name: _dense(batch, name, spec) for name, spec in signature.inputs.items()}


def _dense(batch: Batch, name: str, spec: Any) -> npt.NDArray[Any]:
    """[records, ...] of the shape and type of `spec`."""
    column = batch.columns.get(name, pa.nulls(len(batch.records), pa.large_list(pa.null())))
    counts = item_counts(column)
    dims = list(spec.shape[1:]) if spec.shape.rank else []
    size = math.prod(dims) if None not in dims else int(counts.max(initial=0))
    wanted, missing = counts == size, counts == 0
    if not (wanted | missing).all():
        row = int(np.argmin(wanted | missing))
        raise _unfit(batch, row, f"column {name!r} has {counts[row]} values, and the model takes {size}")
    if size and missing.any() and not _has_missing(spec):
        raise _unfit(batch, int(np.argmax(missing)), f"column {name!r} has no value, and {_no_missing(spec)}")
    dense = np.full((len(counts), size), *_empty(spec))
    dense[wanted] = _items(column).reshape(-1, size) if size else 0
    return dense.reshape(len(counts), *_filled(dims, size))


def _has_missing(spec: Any) -> bool:
    """Whether a value of the type stands for a missing one."""
    return bool(spec.dtype.is_floating or spec.dtype.name == "string")


def _no_missing(spec: Any) -> str:
    return f"{spec.dtype.name} has none that means missing"


def _empty(spec: Any) -> tuple[Any, Any]:
    """(what stands for a missing value, NumPy's type of all)."""
    if spec.dtype.name == "string":
        return b"", object
    return (math.nan if spec.dtype.is_floating else 0), spec.dtype.as_numpy_dtype


def _items(column: pa.Array) -> npt.NDArray[Any]:
    items = column.flatten()
    if pa.types.is_large_binary(items.type):
        return np.array([*items.to_pylist(), None], object)[:-1]  # so that values of one length are no text array
    return np.asarray(items.to_numpy(zero_copy_only=False))


def _filled(dims: Iterable[int | None], size: int) -> list[int]:
    """The dimensions, the first unknown one filled by what is left for it; further ones are 1."""
    filled, left = list[int](), size
    known = math.prod(dim for dim in dims if dim)
    for dim in dims:
        filled.append(dim if dim is not None else left // known)
        left = left if dim is not None else known
    return filled


def _unfit(batch: Batch, row: int, what: str) -> InfeedError:
    return InfeedError(what, where=batch.where(row), do=_DO)
