"""A SavedModel of any export, loaded once in this process, and its signatures as functions of whole batches.

A signature takes serialized tf.Examples, or the features themselves: `features_of` makes of a batch what it takes.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.example_types import item_counts
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions.batches import Batch, KnownColumn

Arrays = dict[str, npt.NDArray[Any]]
_FILE = "saved_model.pb"
_OPERATIONS = ("tensorflow_text", "tensorflow_decision_forests", "struct2tensor")  # which TFX's BulkInferrer knows
_UNKNOWN_OPERATION = "Op type not registered"
_DO_KNOW = "install what brings the operation; that of subwords: pip install 'tfx-infeed[text]'"
_DO = "ask a signature that takes serialized tf.Examples, or write the examples as the model takes them"


class RefusedBatchError(InfeedError):
    """TensorFlow cannot answer a batch; what it says is of a row in it, or of all."""


@dataclass(frozen=True)
class Signature:
    """One of a model's functions.

    Attributes:
      name: of the signature.
      where: the model's folder, for errors.
      arguments: feature -> the argument that takes it. Exports of infeed's Trainer say which; in others a feature is
        called as its argument is.
      inputs: feature -> TensorSpec.
      outputs: output -> TensorSpec.
      takes_examples: whether it takes serialized tf.Examples, string [batch], and not the features themselves.
      function: what TensorFlow calls.
    """

    name: str
    where: str
    arguments: Mapping[str, str]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    takes_examples: bool
    function: Any

    def __call__(self, features: Mapping[str, Any]) -> Arrays:
        """Output -> array [batch, ...] of a batch.

        Args:
          features: feature -> values [batch, ...] that TensorFlow makes a tensor of; all that `inputs` names.

        Raises:
          RefusedBatchError: TensorFlow cannot answer the batch.
          InfeedError: an output's first dimension is not the batch.
        """
        import tensorflow as tf

        rows = len(next(iter(features.values())))
        try:
            tensors = {
                self.arguments[name]: tf.constant(given, self.inputs[name].dtype) for name, given in features.items()
            }
            found = {name: tensor.numpy() for name, tensor in self.function(**tensors).items()}
        except (tf.errors.OpError, ValueError, TypeError) as error:
            do = "give the model what its export says that it takes"
            raise RefusedBatchError(_in_words(error), where=f"{self.where}, signature {self.name!r}", do=do) from error
        for name, array in found.items():
            self._check_rows(name, array.shape, rows)
        return found

    def check_outputs(self) -> None:
        """Raises InfeedError for an output that is known to have no rows before the model is asked at all."""
        for name, spec in self.outputs.items():
            if spec.shape.rank == 0:
                self._check_rows(name, (), None)

    def _check_rows(self, name: str, shape: tuple[int, ...], rows: int | None) -> None:
        if rows is None or not shape or shape[0] != rows:
            of = "a row for each example" if rows is None else f"the {rows:,} rows of the batch as its first dimension"
            raise InfeedError(
                f"output {name!r} has the shape {list(shape)}, without {of}",
                where=f"{self.where}, signature {self.name!r}",
                do="export a signature whose outputs are [batch] or [batch, ...], or choose another signature",
            )


@dataclass(frozen=True)
class SavedModel:
    """A loaded model, which can be asked from several threads."""

    where: str
    loaded: Any

    @classmethod
    def load(cls, path: str, tags: Sequence[str] = (), called: str = "the model") -> SavedModel:
        """
        Args:
          path: folder of a SavedModel, or of numbered versions as Pusher fills it: then the newest.
          tags: of the graph to load; none where it holds only one, as most do.
          called: what an error calls it.

        Raises:
          InfeedError: there is none, or TensorFlow cannot read it.
        """
        folder = model_folder(path)  # before TensorFlow, which takes seconds to import
        try:
            return cls(folder, _load(folder, tags))
        except Exception as error:  # whatever TensorFlow raises for a damaged one
            first = str(error).strip().partition("\n")[0].partition(". Make sure")[0] or repr(error)
            do = _DO_KNOW if _UNKNOWN_OPERATION in first else "export it again"
            raise InfeedError(f"{called} cannot be loaded: {first}", where=folder, do=do) from error

    @property
    def source_options(self) -> dict[str, dict[str, Any]]:
        """How the files were written that infeed's Trainer learned from: format -> its options; empty where unknown."""
        if not hasattr(self.loaded, "source_options"):
            return {}
        options: dict[str, dict[str, Any]] = json.loads(self.loaded.source_options.numpy())
        return options

    def signature(self, name: str, do: str = "choose another signature") -> Signature:
        """The one of this name; an error says what to `do` where there is none.

        Raises:
          InfeedError: there is none, or it takes nothing.
        """
        signatures = self.loaded.signatures
        if name not in signatures:
            there = ", ".join(signatures) or "none at all"
            raise InfeedError(f"the model has no signature {name!r}; it has {there}", where=self.where, do=do)
        function = signatures[name]
        specs = dict(sorted(function.structured_input_signature[1].items()))
        if not specs:
            raise InfeedError(f"signature {name!r} takes nothing", where=self.where, do=do)
        known = self._known_arguments(specs)
        arguments = known or {argument: argument for argument in specs}
        inputs = {feature: specs[argument] for feature, argument in arguments.items()}
        outputs = dict(sorted(function.structured_outputs.items()))  # which come in another order each time
        return Signature(name, self.where, arguments, inputs, outputs, not known and _is_of_examples(specs), function)

    def _known_arguments(self, specs: Mapping[str, Any]) -> dict[str, str]:
        """Feature -> argument, where infeed's Trainer has exported this signature for raw features."""
        if not hasattr(self.loaded, "raw_features"):
            return {}
        lists = (self.loaded.raw_features, self.loaded.raw_arguments)
        known = dict(zip(*([name.decode() for name in one.numpy()] for one in lists), strict=True))
        return known if set(known.values()) == set(specs) else {}


def _is_of_examples(specs: Mapping[str, Any]) -> bool:
    """As TFX has it: one argument, and text."""
    [first, *more] = specs.values()
    return not more and first.dtype.name == "string" and first.shape.rank in (None, 1)


def model_folder(path: str) -> str:
    """The folder of a SavedModel: `path` itself, or the newest of the versions in it.

    Raises:
      InfeedError: there is none.
    """
    if files.exists(files.join(path, _FILE)):
        return path
    inside = files.list_folders(path) if files.is_folder(path) else []
    versions = sorted((name for name in inside if name.isdigit()), key=int, reverse=True)
    for folder in (files.join(path, version) for version in versions[:1]):
        if files.exists(files.join(folder, _FILE)):
            return folder
    raise InfeedError(
        "there is no saved model", where=path, do="give the folder that the run's last lines name as the pushed model"
    )


def _load(folder: str, tags: Sequence[str]) -> Any:
    """Where an operation is not known, once more with the packages that bring further ones: they import slowly."""
    import tensorflow as tf

    try:
        return tf.saved_model.load(folder, tags=list(tags) or None)
    except (OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
        if _UNKNOWN_OPERATION not in str(error):
            raise
        for name in _OPERATIONS:
            with suppress(ImportError, tf.errors.NotFoundError):
                importlib.import_module(name)
        return tf.saved_model.load(folder, tags=list(tags) or None)


def _in_words(error: Exception) -> str:
    """The first line of TensorFlow's words, without what it says of its own graph."""
    lines = [line for line in str(getattr(error, "message", error)).splitlines() if line.strip()]
    told = (
        line for line in lines if not line.startswith(("Graph execution error", "Detected at node", "  ", "<stack"))
    )
    return next(told, "no reason given").rpartition("}} ")[2].partition(" [Op:")[0]


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
