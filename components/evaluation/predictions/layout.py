"""Columns of the output in Arrow: keys and columns of the examples, then outputs of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import check_known
from infeed.components.evaluation.batches import Batch, KnownColumn
from infeed.components.evaluation.predictions.options import PredictOptions
from infeed.components.evaluation.predictor import Arrays, Signature

_NUMBERS: Mapping[str, pa.DataType] = {"int": pa.int64(), "float": pa.float32()}


@dataclass(frozen=True)
class AnswerColumns:
    """Names and types of the output columns: `carried` from the examples, and column -> output of the model."""

    carried: Mapping[str, pa.DataType]
    outputs: Mapping[str, str]
    types: Mapping[str, pa.DataType]

    @classmethod
    def of(
        cls, options: PredictOptions, known: Mapping[str, KnownColumn], signature: Signature, probe: Arrays | None
    ) -> AnswerColumns:
        """Determine the columns. Raise InfeedError if Arrow columns do not support the type of an output.

        `probe` contains outputs for sample rows, which show shapes that the signature does not define.
        """
        nested = options.output_format == "parquet"
        outputs = dict(options.outputs or {name: name for name in signature.outputs})
        carried: dict[str, pa.DataType] = {}
        for name in options.carried:
            text = pa.large_string() if nested and known[name].is_text else pa.large_binary()
            item = _NUMBERS.get(known[name].type, text)
            carried[name] = pa.large_list(item) if known[name].is_list else item
        types = {
            column: _output_type(name, signature, (probe or {}).get(name), nested) for column, name in outputs.items()
        }
        return cls(carried, outputs, types)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({**self.carried, **self.types})

    def table(self, batch: Batch, found: Arrays) -> pa.RecordBatch:
        """Return a row for each record, in order. Raise InfeedError if bytes to convert to text are not UTF-8."""
        carried = [_carry(batch, name, kind) for name, kind in self.carried.items()]
        answers = [_arrow(batch, name, found[self.outputs[name]], kind) for name, kind in self.types.items()]
        return pa.RecordBatch.from_arrays([*carried, *answers], schema=self.schema)


def check_names(options: PredictOptions, known: Mapping[str, KnownColumn], signature: Signature, where: str) -> None:
    """Raise InfeedError for a missing column or output, and for a column and an output with the same name."""
    check_known(options.carried, sorted(known), where, "column")
    there = f"{signature.where}, signature {signature.name!r}"
    check_known(options.outputs.values(), signature.outputs, there, "output")
    taken = known if options.output_format == "examples" else options.carried
    for column in options.outputs or signature.outputs:
        if column in taken:
            what = f"{column!r} is a column of the examples and one of the predictions"
            do = "rename the output with `outputs`, such as {'predicted': " + repr(column) + "}"
            raise InfeedError(what, where=where, do=do)


def _carry(batch: Batch, name: str, kind: pa.DataType) -> pa.Array:
    """Convert lists of at most one value to single values. Other lists are unchanged."""
    column = batch.columns.get(name)
    if column is None:
        return pa.nulls(len(batch.records), kind)
    if pa.types.is_large_list(kind):
        return column.cast(kind)
    first, stop = column.offsets[:-1].to_numpy(), column.offsets[1:].to_numpy()
    return column.values.take(pa.array(first, mask=first == stop)).cast(kind)


def _output_type(name: str, signature: Signature, found: npt.NDArray[Any] | None, nested: bool) -> pa.DataType:
    spec = signature.outputs[name]
    item = _item_type(name, signature, nested)
    rank = spec.shape.rank or (1 if found is None else found.ndim)
    dims: list[int | None] = list(spec.shape[1:]) if spec.shape.rank else [None] * (rank - 1)
    # One value a row is no list, as of a Keras model whose last axis is 1.
    if dims in ([], [1]):
        return item
    if not nested:
        return pa.list_(item)
    for dim in reversed(dims):
        item = pa.list_(item, dim) if dim else pa.list_(item)
    return item


def _item_type(name: str, signature: Signature, nested: bool) -> pa.DataType:
    dtype = signature.outputs[name].dtype
    if dtype.name == "string":
        return pa.string() if nested else pa.binary()
    if dtype.name in ("float16", "bfloat16"):
        return pa.float32()
    try:
        return pa.from_numpy_dtype(dtype.as_numpy_dtype)
    except (pa.ArrowException, TypeError) as error:
        what = f"output {name!r} has type {dtype.name}, which columns do not support"
        do = "select other outputs, or export it as numbers or text"
        raise InfeedError(what, where=f"{signature.where}, signature {signature.name!r}", do=do) from error


def _arrow(batch: Batch, name: str, found: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Convert [batch, ...] to values, lists, or lists of lists. Dimensions beyond those of `kind` are flattened."""
    kinds = [kind]
    while pa.types.is_list(kinds[-1]) or pa.types.is_fixed_size_list(kinds[-1]):
        kinds.append(kinds[-1].value_type)
    *lists, item = kinds
    shape = [*found.shape[: len(lists)], math.prod(found.shape[len(lists) :])]
    values = _items(batch, name, found.reshape(-1), item)
    for axis in range(len(lists), 0, -1):
        if pa.types.is_fixed_size_list(lists[axis - 1]):
            values = pa.FixedSizeListArray.from_arrays(values, shape[axis])
        else:
            offsets = np.arange(math.prod(shape[:axis]) + 1) * shape[axis]
            values = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    return values


def _items(batch: Batch, name: str, found: npt.NDArray[Any], item: pa.DataType) -> pa.Array:
    if found.dtype != object:
        return pa.array(found.astype(item.to_pandas_dtype(), copy=False), item)
    try:
        return pa.array(found.tolist(), pa.binary()).cast(item)
    except pa.ArrowInvalid as error:
        do = "write tfrecord or prediction_log, which store bytes unchanged"
        raise InfeedError(f"{name!r} holds bytes that are not UTF-8 text", where=batch.where(), do=do) from error
