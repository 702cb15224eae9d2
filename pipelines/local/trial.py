"""Quick trial of a run before any long work: strategy, and preprocessing function or model with loss and metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.trainer.distribution import check_batch_size, check_xla, make_strategy, without_accelerators
from infeed.components.trainer.model import Head, ModelSpec, OutputSpec, losses_of, make_model, outputs_of, takes_logits
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.feature import Feature
from infeed.components.transform.in_process.graphs import Graph
from infeed.components.transform.kinds.clean import Fill
from infeed.components.transform.kinds.encode import Bucketize, Hash, Vocabulary
from infeed.components.transform.kinds.image import DecodeImage
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import Log, MinMax, Robust, ZScore
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.surveys import Survey, TableSurvey, with_sample

_OF_ONE_PROCESS = ("auto", "one_device", "mirrored", "tpu")  # the trial cannot create the others without a cluster
_ROWS = 2
_SURELY_MISSING = 50  # with this many rows without a value, each split has some
# Features with one number per value of the column.
_INDICES = (Vocabulary, Bucketize, Hash)
_NUMBERS = (Fill, ZScore, MinMax, Robust, Log)
_TYPES = {"int": tf.int64, "float": tf.float32, "bytes": tf.string}


def try_out(config: PipelineConfig) -> None:
    """Create the strategy and the model for the surveyed shapes, and call the loss and metrics on zeros.

    The outputs of a preprocessing function depend on the data, so the trial traces the function and skips the model.
    Raises InfeedError for an error that would stop Transform or the Trainer.
    """
    options = config.train
    if options.backend == "jax":
        without_accelerators()
    elif options.strategy in _OF_ONE_PROCESS:
        strategy = make_strategy(options.strategy)
        check_batch_size(options.feed.batch_size, strategy)
        check_xla(options.xla, strategy)
    for feature in config.features:
        for path in feature.files:
            if not files.exists(path):
                raise InfeedError(f"there is no file {path!r}", where=f"{feature}", do="correct the path")
    if options.input_fn:  # the model's inputs are known only after the input function has run
        return
    if config.preprocessing_fn:
        if isinstance(config.survey, TableSurvey):
            _try_function(config.preprocessing_fn, config, config.survey)
        return
    try:
        _try_model(options, config.survey, config.features)
    finally:
        keras.utils.clear_session()  # keep the default layer names of the later training


def _try_function(named: str, config: PipelineConfig, survey: TableSurvey) -> None:
    """Trace the user's function if the survey determines whether each column is sparse.

    A column with missing cells is sparse. If only few cells are missing, they may all be in one split, and
    SchemaGen may decide otherwise.
    """
    columns = survey.all_columns
    if any(column.is_list or 0 < column.missing < _SURELY_MISSING for column in columns):
        return
    specs = {
        one.name: tf.SparseTensorSpec([None, None], _TYPES[one.type])
        if one.missing
        else tf.TensorSpec([None, 1], _TYPES[one.type])
        for one in columns
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            graph = Graph.of(user_code.load(named, "preprocessing_fn"), specs, folder)
            graph.check()
    except InfeedError as error:
        raise with_sample(error, survey) from error
    # Declared features come beside the outputs of the function.
    given = {*graph.outputs, *(feature.output_name for feature in config.features)}
    for name in config.train.labels:
        if name not in given:
            column = survey.label.name if isinstance(config.train.label, str) else name
            rename = ", set its name with train: {label: NAME}" if isinstance(config.train.label, str) else ""
            raise InfeedError(
                f"no feature is the label {name!r}",
                where=named,
                do=f"return it under that name{rename}, or declare it: features: [{{kind: label, column: {column}}}]",
            )


def _try_model(options: TrainOptions, survey: Survey, features: Sequence[Feature]) -> None:
    if not all(map(_is_known, features)):
        return
    taken = [one for one in features if not isinstance(one, Label) and one.output_name != options.feed.weight]
    taken.sort(key=lambda feature: feature.output_name)
    inputs = {feature.output_name: _spec(feature, options, survey) for feature in taken}
    # The only output has the name "".
    labels = {"": OutputSpec(options.task, () if options.task == "regression" else tuple(survey.classes))}
    if not isinstance(options.label, str):
        assert isinstance(survey, TableSurvey), "images have one label"
        labels = {one.column.name: OutputSpec(one.task, one.classes) for one in survey.labels}
    zeros = {
        name: tf.zeros([_ROWS, len(one.classes)], tf.float32)
        if one.task == "multilabel"
        else tf.zeros([_ROWS], tf.int64 if one.classes else tf.float32)
        for name, one in labels.items()
    }
    model_inputs = {name: tf.TensorSpec(spec.shape[1:], spec.dtype, name) for name, spec in inputs.items()}
    spec = ModelSpec.of(model_inputs, labels, _vocabulary_sizes(features, survey), options.hparams)
    try:
        model, pick = make_model(options, spec, inputs)
        given = pick({name: tf.zeros([_ROWS, *one.shape[1:]], one.dtype) for name, one in inputs.items()})
        output = model(given, training=False)
        model.compute_loss(given, zeros.get("", zeros), output)
        model.compute_metrics(given, zeros.get("", zeros), output)
    except InfeedError:
        raise
    except Exception as error:  # the user's layers, loss and metrics may raise anything
        reason = str(error).strip().partition("\n")[0]
        what = f"the model cannot be trained: {type(error).__name__}: {reason}"
        forms = {name: "int64, a class each" if zeros[name].dtype == tf.int64 else "float32" for name in labels}
        told = ", ".join(f"{name}: {form}" if name else form for name, form in forms.items())
        do = f"check its layers, loss and metrics; labels are {told}"
        raise InfeedError(what, where=options.model_fn, do=do) from error
    outputs, losses = outputs_of(output, model, [*labels]), losses_of(model, [*labels])
    for name, one in labels.items():
        # The Evaluator needs probabilities for a classification, and a number for a regression.
        wanted = "prediction" if one.task == "regression" else "probabilities"
        if wanted not in Head(one.task, takes_logits(losses[name]), one.classes).predictions(outputs[name]):
            what = f"it is unknown whether the model's output{f' {name!r}' if name else ''} is probabilities, which"
            do = "end it in a softmax, or compile it with a cross-entropy with from_logits=True"
            raise InfeedError(f"{what} Evaluator measures", where=options.model_fn, do=do)


def _spec(feature: Feature, options: TrainOptions, survey: Survey) -> tf.TensorSpec:
    """Return the spec, [batch, ...], of a feature as model input."""
    if isinstance(feature, DecodeImage):
        is_fed_as_bytes = feature.output_name in options.images and options.normalise is None
        shape = (None, feature.height, feature.width, feature.channels)
        return tf.TensorSpec(shape, tf.uint8 if is_fed_as_bytes else tf.float32)
    if isinstance(feature, Fill):
        return tf.TensorSpec((None, 1), _TYPES[_columns(survey)[feature.column].type])
    return tf.TensorSpec((None, feature.length or 1), tf.int64 if isinstance(feature, _INDICES) else tf.float32)


def _is_known(feature: Feature) -> bool:
    """Return whether the output shape of a feature is known without reading rows."""
    if isinstance(feature, DecodeImage | Label):
        return True
    lists = feature.values != "one" or any(step.makes_lists for step in feature.steps)
    return isinstance(feature, (*_INDICES, *_NUMBERS)) and (feature.length is not None or not lists)


def _vocabulary_sizes(features: Sequence[Feature], survey: Survey) -> dict[str, int]:
    columns = _columns(survey)
    found = [feature for feature in features if isinstance(feature, Vocabulary) and feature.column in columns]
    sizes = {feature.output_name: (columns[feature.column].distinct, feature.size) for feature in found}
    return {name: min(size for size in of if size is not None) if any(of) else 1 for name, of in sizes.items()}


def _columns(survey: Survey) -> Mapping[str, Any]:
    return {column.name: column for column in survey.columns} if isinstance(survey, TableSurvey) else {}
