"""SavedModel of any exporter, loaded once. Its signatures are called with whole batches.

A signature takes serialized tf.Examples or separate features. `features_of` converts a batch to either. `RawColumns`
describes the training data of a model that infeed's Trainer exported, readable without TensorFlow.
"""

from __future__ import annotations

import importlib
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.base import machine
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.example_types import item_counts
from infeed.components.dataset.manifest import ColumnType, Manifest
from infeed.components.dataset.reading import ShardRange
from infeed.components.engine.choice import Work
from infeed.components.evaluation.batches import Batch, KnownColumn, flat_values

Arrays = dict[str, npt.NDArray[Any]]
_FILE = "saved_model.pb"
# Packages with operations that TFX's BulkInferrer imports.
_OPERATIONS = ("tensorflow_text", "tensorflow_decision_forests", "struct2tensor")
_UNKNOWN_OPERATION = "Op type not registered"
_DO = "ask a signature that takes serialized tf.Examples, or write the examples as the model takes them"


class RefusedBatchError(InfeedError):
    """TensorFlow rejected a batch. The message is about one row or all rows."""


class OutputRowsError(InfeedError):
    """An output does not have one row for each row of the batch."""


@dataclass(frozen=True)
class Signature:
    """A signature of a model."""

    name: str
    where: str  # folder of the model, for errors
    # feature -> argument. Defined in exports of infeed's Trainer, otherwise the names are equal
    arguments: Mapping[str, str]
    inputs: Mapping[str, Any]  # feature -> TensorSpec
    outputs: Mapping[str, Any]  # output -> TensorSpec
    takes_examples: bool  # whether it takes serialized tf.Examples, string [batch], instead of features
    function: Any  # TensorFlow's function

    def __call__(self, features: Mapping[str, Any]) -> Arrays:
        """Return the outputs for a batch, output -> array [batch, ...], given values [batch, ...] of all `inputs`.

        Sparse and ragged outputs are padded with zeros or empty text.

        Raises:
          RefusedBatchError: TensorFlow rejected the batch.
          OutputRowsError: the first dimension of an output is not the batch.
        """
        import tensorflow as tf

        rows = len(next(iter(features.values())))
        try:
            tensors = {
                self.arguments[name]: tf.constant(given, self.inputs[name].dtype) for name, given in features.items()
            }
            found = dict[str, npt.NDArray[Any]]()
            for name, tensor in self.function(**tensors).items():
                dense = tf.sparse.to_dense(tensor) if isinstance(tensor, tf.SparseTensor) else tensor
                found[name] = (dense.to_tensor() if isinstance(dense, tf.RaggedTensor) else dense).numpy()
        except (tf.errors.OpError, ValueError, TypeError) as error:
            do = "pass the inputs that the signature declares"
            # The first line of TensorFlow's message, without the part about its graph.
            lines = [line for line in str(getattr(error, "message", error)).splitlines() if line.strip()]
            of_graph = ("Graph execution error", "Detected at node", "  ", "<stack")
            told = next((line for line in lines if not line.startswith(of_graph)), "no reason given")
            what = told.rpartition("}} ")[2].partition(" [Op:")[0]
            raise RefusedBatchError(what, where=f"{self.where}, signature {self.name!r}", do=do) from error
        for name, array in found.items():
            self._check_rows(name, array.shape, rows)
        return found

    def check_outputs(self) -> None:
        """Raise OutputRowsError for an output whose spec rules out one row per example, or rows of one length.

        A prediction must not depend on the other rows of its batch, and padding to the longest row does.
        """
        import tensorflow as tf

        ragged = tf.RaggedTensorSpec, tf.RaggedTensor, tf.SparseTensorSpec, tf.SparseTensor
        for name, spec in self.outputs.items():
            if isinstance(spec, ragged):
                what = f"output {name!r} is a {type(spec).__name__.removesuffix('Spec')}, whose rows differ in length"
                do = "export it as a dense tensor, as with to_tensor or tf.sparse.to_dense, or choose another signature"
                raise OutputRowsError(what, where=f"{self.where}, signature {self.name!r}", do=do)
            if spec.shape.rank == 0:
                self._check_rows(name, (), None)

    def _check_rows(self, name: str, shape: tuple[int, ...], rows: int | None) -> None:
        if rows is None or not shape or shape[0] != rows:
            of = "one row per example" if rows is None else f"the {rows:,} rows of the batch as its first dimension"
            what = f"output {name!r} has the shape {list(shape)}, without {of}"
            do = "export a signature whose outputs are [batch] or [batch, ...], or choose another signature"
            raise OutputRowsError(what, where=f"{self.where}, signature {self.name!r}", do=do)


@dataclass(frozen=True)
class Predictor:
    """A loaded model, usable from several threads."""

    where: str
    loaded: Any

    @classmethod
    def load(cls, path: str, tags: Sequence[str] = (), called: str = "the model") -> Predictor:
        """Load a model. Raise InfeedError if there is none, or TensorFlow cannot load it.

        Args:
          path: folder of a SavedModel, or of numbered versions of a Pusher. The newest version is used.
          tags: tags of the graph to load. Empty if there is only one graph, as in most models.
        """
        folder = model_folder(path)  # before the import of TensorFlow, which takes seconds
        try:
            return cls(folder, _load(folder, tags))
        except Exception as error:  # TensorFlow may raise anything for a damaged model
            first = str(error).strip().partition("\n")[0].partition(". Make sure")[0] or repr(error)
            do = "install what brings the operation; of tensorflow-text: pip install 'tfx-infeed[text]'"
            do = do if _UNKNOWN_OPERATION in first else "export it again"
            raise InfeedError(f"{called} cannot be loaded: {first}", where=folder, do=do) from error

    def signature(self, name: str, do: str = "use another signature") -> Signature:
        """Return a signature by name. If it does not exist or has no inputs, the error has the remedy `do`."""
        signatures = self.loaded.signatures
        if name not in signatures:
            there = ", ".join(signatures) or "none at all"
            raise InfeedError(f"the model has no signature {name!r}, only {there}", where=self.where, do=do)
        function = signatures[name]
        specs = dict(sorted(function.structured_input_signature[1].items()))
        if not specs:
            raise InfeedError(f"signature {name!r} has no inputs", where=self.where, do=do)
        known = dict(zip(self._names("raw_features"), self._names("raw_arguments"), strict=True))
        if set(known.values()) != set(specs):  # this signature does not take raw features
            known = {}
        arguments = known or {argument: argument for argument in specs}
        inputs = {feature: specs[argument] for feature, argument in arguments.items()}
        outputs = dict(sorted(function.structured_outputs.items()))  # sorted, because their order varies
        first = next(iter(specs.values()))  # TFX passes serialized examples to a single string argument
        is_of_examples = len(specs) == 1 and first.dtype.name == "string" and first.shape.rank in (None, 1)
        return Signature(name, self.where, arguments, inputs, outputs, not known and is_of_examples, function)

    @property
    def raw_features(self) -> list[str]:
        """Columns that the model reads, if infeed's Trainer exported it. Empty for other models."""
        return self._names("raw_features")

    def _names(self, attribute: str) -> list[str]:
        known = getattr(self.loaded, attribute, None)
        return [] if known is None else [name.decode() for name in known.numpy()]


@dataclass(frozen=True)
class RawSignature:
    """Signature of raw features, which infeed's Trainer exports, and signature of tf.Examples."""

    raw: Signature
    examples: Signature

    @classmethod
    def of(cls, model: Predictor) -> RawSignature:
        """Return both signatures of a model. Raises InfeedError if infeed's Trainer did not export the model."""
        do = "give a model that infeed's Trainer exported, or a dataset of `infeed ingest` as input of this model"
        return cls(model.signature("raw", do), model.signature("serving_default", do))

    def __call__(self, cells: Mapping[str, Any]) -> Arrays:
        """Call the raw signature. Rows with missing integers or lists, which it cannot take, go through tf.Examples."""
        count = len(next(iter(cells.values())))
        odd = {
            place
            for name, column in cells.items()
            for place, cell in enumerate(column)
            if cell is None or (isinstance(cell, list) and self.raw.inputs[name].shape.rank == 1)
        }
        if not odd:
            return self.raw(cells)
        if len(odd) == count:
            return self._by_example(cells)
        order = [*(place for place in range(count) if place not in odd), *sorted(odd)]
        usual, others = self.raw(part(cells, order[: count - len(odd)])), self._by_example(part(cells, sorted(odd)))
        back = np.argsort(order)
        return {name: np.concatenate([usual[name], others[name]])[back] for name in usual}

    def _by_example(self, cells: Mapping[str, Any]) -> Arrays:
        """Call the signature of tf.Examples. A missing value is a missing feature."""

        def as_list(cell: Any) -> list[Any] | None:
            if isinstance(cell, list):
                return cell
            return None if cell is None or cell == "" or cell != cell else [cell]  # NaN differs from itself

        known = {name: [as_list(cell) for cell in column] for name, column in cells.items()}
        [argument] = self.examples.inputs
        return self.examples({argument: encode_examples(pa.RecordBatch.from_pydict(known)).to_pylist()})


def of_output(outputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the tensors of one output of a model with several, as TFMA finds them: under its name, or below `name/`.

    Empty if the model has no such output. The only output of a model has the name "".
    """
    if not name:
        return dict(outputs)
    if name in outputs:
        return {name: outputs[name]}
    return {key.removeprefix(f"{name}/"): one for key, one in outputs.items() if key.startswith(f"{name}/")}


def model_work(does: str, shards: Sequence[ShardRange], process_bytes: int, imports: Sequence[str]) -> Work:
    """Return the work of asking a model about shards. A model on a GPU is asked in one process."""
    import tensorflow as tf

    alone = "the model is on a GPU" if tf.config.list_physical_devices("GPU") else ""
    size, per_process = sum(shard.bytes for shard in shards), (process_bytes, machine.TENSORFLOW_MEMORY)
    return Work(does, len(shards), size, *per_process, alone=alone, imports=[*imports])


def part(cells: Mapping[str, Any], places: Iterable[int]) -> dict[str, list[Any]]:
    """Return some rows of all columns."""
    chosen = list(places)
    return {name: [column[place] for place in chosen] for name, column in cells.items()}


def model_folder(path: str) -> str:
    """Return the folder of a SavedModel: `path`, or the newest complete version in it or in its subfolder `serving`.

    A push writes the main file of a version last. Raises InfeedError if there is no model.
    """
    if files.exists(files.join(path, _FILE)):
        return path
    for folder in (*_versions(path), *_versions(files.join(path, "serving"))):  # a run pushes to `serving`
        if files.exists(files.join(folder, _FILE)):
            return folder
    do = "use the folder of a run whose model was blessed, or the model in the last lines of the run"
    raise InfeedError("there is no saved model", where=path, do=do)


def _versions(path: str) -> list[str]:
    """Return the numbered folders in a folder, the newest first."""
    inside = files.list_folders(path) if files.is_folder(path) else []
    return [files.join(path, name) for name in sorted(filter(str.isdigit, inside), key=int, reverse=True)]


def _load(folder: str, tags: Sequence[str]) -> Any:
    """Load a model. If an op is unknown, import the packages with additional ops, which is slow, and retry."""
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


def check_inputs(signature: Signature, known: Mapping[str, KnownColumn], where: str) -> None:
    """Raise InfeedError unless the data has a column of a matching type for each feature of the signature."""
    for name, spec in signature.inputs.items():
        if name not in known:
            do = f"{_DO}; the columns are {', '.join(map(repr, sorted(known)))}"
            raise InfeedError(f"the model takes {name!r}, but the data has no such column", where=where, do=do)
        kind = known[name].type
        if (kind == "bytes") != (spec.dtype.name == "string") or (kind == "float" and not spec.dtype.is_floating):
            what = f"column {name!r} is {kind}, but the model takes {spec.dtype.name}"
            raise InfeedError(what, where=where, do=_DO)
        if known[name].some_missing and not _has_missing(spec):
            raise InfeedError(f"column {name!r} has rows without a value, but {_no_missing(spec)}", where=where, do=_DO)


def features_of(batch: Batch, signature: Signature) -> dict[str, Any]:
    """Return the arguments of `signature` for a batch. Missing numbers become NaN, and missing text becomes empty.

    Raise InfeedError for a row without a value for an integer input, or with a wrong number of values.
    """
    if signature.takes_examples:
        return {name: list(batch.records) for name in signature.inputs}
    return {name: _dense(batch, name, spec) for name, spec in signature.inputs.items()}


def _dense(batch: Batch, name: str, spec: Any) -> npt.NDArray[Any]:
    column = batch.columns.get(name, pa.nulls(len(batch.records), pa.large_list(pa.null())))
    counts = item_counts(column)
    dims = list(spec.shape[1:]) if spec.shape.rank else []
    size = math.prod(dims) if None not in dims else int(counts.max(initial=0))
    wanted, missing = counts == size, counts == 0
    if not (wanted | missing).all():
        row = int(np.argmin(wanted | missing))
        what = f"column {name!r} has {counts[row]} values, but the model takes {size}"
        raise InfeedError(what, where=batch.where(row), do=_DO)
    if size and missing.any() and not _has_missing(spec):
        what, row = f"column {name!r} has no value, but {_no_missing(spec)}", int(np.argmax(missing))
        raise InfeedError(what, where=batch.where(row), do=_DO)
    empty, kind = (b"", object) if spec.dtype.name == "string" else (0, spec.dtype.as_numpy_dtype)
    dense = np.full((len(counts), size), math.nan if spec.dtype.is_floating else empty, kind)
    dense[wanted] = flat_values(column).reshape(-1, size) if size else 0
    # The first unknown dimension is inferred from the size, and further ones are 1.
    unknown, left = size // math.prod(dim for dim in dims if dim), list[int]()
    for dim in dims:
        left.append(unknown if dim is None else dim)
        unknown = unknown if dim is not None else 1
    return dense.reshape(len(counts), *left)


def _has_missing(spec: Any) -> bool:
    """Return whether a type can represent missing values."""
    return bool(spec.dtype.is_floating or spec.dtype.name == "string")


def _no_missing(spec: Any) -> str:
    return f"{spec.dtype.name} has no value that means missing"


@dataclass(frozen=True)
class RawColumns:
    """Columns of the training data that a model reads, and the options with which their files were read."""

    columns: tuple[str, ...]  # columns of a prediction
    source_options: Mapping[str, Mapping[str, Any]]  # options of the training files, by format
    types: Mapping[str, ColumnType] = field(default_factory=dict)  # types of all columns that an evaluation parses
    outputs: Mapping[str, str] = field(default_factory=dict)  # output -> task. The only output has the name ""
    dates: Mapping[str, Sequence[str]] = field(default_factory=dict)  # formats of the dates in text columns
    truths: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # words for false and true in text columns

    @classmethod
    def of(cls, folder: str) -> RawColumns | None:
        """Return the columns of the model in a folder. None if another exporter wrote it."""
        path = files.join(folder, names.RAW_COLUMNS)
        if not files.exists(path):
            return None
        described = json.loads(files.read_bytes(path))
        optional = {name: described.get(name, {}) for name in ("types", "outputs", "dates")}
        # The words for false and true of each column whose vocabulary spells them in another case than JSON.
        truths = dict[str, tuple[str, str]]()
        for file in files.list_files(files.join(folder, "assets")):
            words = {*files.read_bytes(file.path).splitlines()} if file.size <= 1024 else set[bytes]()
            for pair in (("False", "True"), ("FALSE", "TRUE")):
                if not {b"false", b"true"} & words and {truth.encode() for truth in pair} & words:
                    truths[files.relative(file.path, files.join(folder, "assets"))] = pair
        return cls(tuple(described["columns"]), described["source_options"], **optional, truths=truths)

    def check_dataset(self, root: str, *, is_baseline: bool = False) -> None:
        """Raise InfeedError if a column of an ingested dataset has another type than in training."""
        if not files.exists(files.join(root, names.MANIFEST)):
            return
        manifest = Manifest.read(root)
        found = {one.name: one.type for one in manifest.schema}
        wrong = {name: kind for name, kind in self.types.items() if found.get(name, kind) != kind}
        if wrong:
            name, *others = wrong
            more = f"; types also differ in {', '.join(map(repr, others))}" if others else ""
            called = "the baseline model" if is_baseline else "the model"
            other = "; pipelines for other data need another root (--root)" if is_baseline else ""
            what = f"column {name!r} is {found[name]}, but {called} reads {wrong[name]}{more}"
            raise InfeedError(what, where=root, do=self._remedy(manifest.source.kind, wrong) + other)

    def _remedy(self, kind: str, wrong: Mapping[str, ColumnType]) -> str:
        if kind != "csv":
            columns = ", ".join(f"{name} as {one}" for name, one in wrong.items())
            return f"write {columns} in the source files, and ingest them again"
        trained = self.source_options.get(kind, {})
        options = {**trained, "types": {**trained.get("types", {}), **wrong}}
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in options.items()}
        flags = " ".join(f"--set {shlex.quote(f'{name}={text}')}" for name, text in texts.items())
        return f"read the source files as in training: infeed ingest SOURCE DATASET {flags}"


UNKNOWN = RawColumns((), {})  # of a model that another exporter wrote


def check_dataset(model: str, root: str, *, is_baseline: bool = False) -> None:
    """If infeed's Trainer exported the model, check the dataset at `root` as `RawColumns.check_dataset` does."""
    if known := RawColumns.of(model):
        known.check_dataset(root, is_baseline=is_baseline)
