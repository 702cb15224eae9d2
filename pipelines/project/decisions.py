"""Decisions from a survey of the data: the metric of the model, the training schedule, and the training options.

The config overrides decisions. The classes, features and splits that training options name are checked before any node
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, get_args

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import Fill
from infeed.components.transform.kinds.encode import Hash, Looked
from infeed.components.transform.kinds.image import DecodeImage
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore
from infeed.pipelines.config import TRAIN, Blessing, Metric
from infeed.pipelines.project.config_file import Project
from infeed.pipelines.surveys import ImageSurvey, Survey, TableSurvey

Part = TypeVar("Part")

# Share of the majority class at which accuracy no longer distinguishes a good model from a constant one.
_IMBALANCED = 2 / 3
SEE_CLASSES = ("auc", "recall", "precision", "f1")
_METRICS = {
    "classification": ("accuracy", "recall", "precision", "f1"),
    "regression": ("mse",),
    "multilabel": ("recall", "precision", "f1"),
}

# With few rows, an epoch has few steps, so there are many epochs. With many rows, an epoch has hundreds of steps, and
# larger batches spread the fixed cost of a step over more rows.
_STEPS_PER_EPOCH = 128  # target steps per epoch, so that an evaluation after each epoch pays
_STEPS = 3_000  # with Adam, small models rarely improve after this number of steps
_LEAST_EPOCHS = 10
_MOST_EPOCHS = {"rows": 100, "images": 20}
_FEWEST_STEPS = 200  # minimum steps of image models, whose epochs may be short, but at most 100 epochs
_SMALLEST_BATCH = 64
# A step of 1,024 table rows costs little more than a step of 64. An image costs thousands of times as much as a row.
_LARGEST_BATCH = {"rows": 1024, "images": 256}
# Share of the epochs without improvement that ends training. The templates lower the learning rate over all epochs,
# and improve most near the end.
_PATIENCE = 1 / 3


def choose_blessing(survey: Survey, given: Any) -> Blessing:
    """Complete the blessing of the config from the data.

    Raises InfeedError if the metric does not fit the task, the class does not exist, or the bound must be set.
    """
    if not isinstance(given, Mapping):
        return schema.read(Blessing, given, "blessing")
    chosen = {name: value for name, value in given.items() if value is not None}
    names = [one.column.name for one in survey.labels] if isinstance(survey, TableSurvey) else []
    output = str(chosen.pop("output", "")) or (names[0] if names else "")
    if output not in (names or [""]):
        do = f"use one of {', '.join(map(repr, names))}" if names else "leave it out: it is for tables"
        raise InfeedError(f"there is no label {output!r}", where="blessing.output", do=do)
    if isinstance(survey, TableSurvey) and len(names) > 1:  # one of several labels decides
        chosen["output"], survey = output, survey.about(output)
    two = survey.task == "classification" and len(survey.classes) == 2
    if "metric" not in chosen:
        of_classes = ("auc" if two else "f1") if is_imbalanced(survey) else "accuracy"
        chosen["metric"] = {"regression": "mse", "multilabel": "f1"}.get(survey.task, of_classes)
    metric = chosen["metric"]
    if metric not in get_args(Metric):
        chosen.setdefault("bound", 0)  # schema.read reports the error
        return schema.read(Blessing, chosen, "blessing")
    if metric not in (fitting := [*_METRICS[survey.task], *(["auc"] if two else [])]):
        kind = {"regression": "a regression", "multilabel": f"sets of {len(survey.classes)} classes"}
        this = kind.get(survey.task, f"a classification of {len(survey.classes)} classes")
        what = f"metric is {metric!r}, but this is {this}"
        raise InfeedError(what, where="blessing.metric", do=f"use one of {', '.join(fitting)}")
    if metric in SEE_CLASSES and two:
        chosen.setdefault("positive", survey.classes[survey.class_rows.index(min(survey.class_rows))])
    positive = chosen.get("positive")
    if positive is not None and survey.task == "multilabel":
        what = f"positive is {positive!r}, but {metric} is over all classes of a set"
        raise InfeedError(what, where="blessing.positive", do="leave it out")
    schema.check_known([positive] if positive is not None else [], survey.classes, "blessing.positive", "class")
    if "bound" not in chosen:
        chosen["bound"] = _guess(metric, positive, survey)
        chosen.setdefault("beat_guess", True)
    return schema.read(Blessing, chosen, "blessing")


def is_imbalanced(survey: Survey) -> bool:
    """Return whether the majority class makes up most of the rows."""
    return survey.task == "classification" and survey.guess > _IMBALANCED


def _guess(metric: str, positive: str | None, survey: Survey) -> float:
    """Return the metric of a constant prediction."""
    share = survey.class_rows[survey.classes.index(positive)] / survey.rows if positive else survey.guess
    if metric == "auc":
        return 0.5
    if metric == "f1" and survey.task == "multilabel":
        return survey.guess
    if metric == "f1":  # predict `positive`, or the majority class, for every row
        return 2 * share / (1 + share) / (1 if positive else len(survey.classes))
    if metric in ("recall", "precision"):
        other = "precision" if metric == "recall" else "recall"
        what = f"{metric} has no default bound: it can be raised at the cost of {other}"
        do = "set a bound, such as bound: 0.8, or use the metric f1 or auc"
        raise InfeedError(what, where="blessing.bound", do=do)
    return survey.guess


def choose_schedule(survey: Survey, rows: int, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Complete the training options by a schedule for the approximate number of training rows.

    Returns:
      The options, and the reason for the schedule. None is a valid `patience`.
    """
    unit = "images" if isinstance(survey, ImageSurvey) else "rows"
    said = [name for name in ("batch_size", "epochs", "patience") if given.get(name) is not None]
    # The largest power of two that leaves enough steps in an epoch.
    power = 1 << (max(rows // _STEPS_PER_EPOCH, 1).bit_length() - 1)
    batch_size = _count(given.get("batch_size")) or min(max(power, _SMALLEST_BATCH), _LARGEST_BATCH[unit])
    steps = max(rows // batch_size, 1)
    most = min(max(_MOST_EPOCHS[unit], _FEWEST_STEPS // steps), 100)
    epochs = _count(given.get("epochs")) or min(max(_STEPS // steps, _LEAST_EPOCHS), most)
    # If epochs is set, there is no early stopping.
    patience = given.get("patience", None if "epochs" in said else max(2, round(_PATIENCE * epochs)))
    stops = f", fewer after {patience} epochs without a better validation loss" if patience else ""
    of_epoch = f"an epoch of about {rows:,} {unit} has {steps:,} step{'s' * (steps > 1)}, {epochs * steps:,} in total"
    given_names = f", given {' and '.join(said)}" if said else ""
    most_epochs = f"{'at most ' if patience else ''}{epochs:,} epochs"
    reason = f"batches of {batch_size:,} and {most_epochs}{stops}: {of_epoch}{given_names}"
    chosen = {"batch_size": batch_size, "epochs": epochs, "patience": patience}
    kept = {name: value for name, value in given.items() if value is not None or name not in chosen}
    return {**chosen, **kept}, reason


def _count(given: Any) -> int:
    """Return a positive integer, or 0. TrainOptions reports other values."""
    return given if isinstance(given, int) and given > 0 else 0


def train_options(
    project: Project, train: dict[str, Any], survey: Survey, labels: Sequence[str], features: Sequence[Feature]
) -> TrainOptions:
    """Return the training options of a project, with `train`, the settings that `choose_schedule` has completed.

    Raises InfeedError if an option is invalid, or names a label, class, feature or split that does not exist.
    """
    settings, of_feed = project.settings, [one.name for one in fields(FeedOptions)]
    feed = {name: train.pop(name) for name in of_feed if name in train}
    for option in ("map_examples", "map_batches"):
        if isinstance(given := feed.get(option), str):
            feed[option] = project.reference(given)
        elif isinstance(given, Mapping) and isinstance(given.get("function"), str):
            feed[option] = {**given, "function": project.reference(given["function"])}
    for function in ("callbacks_fn", "input_fn"):
        if train.get(function):
            train[function] = project.reference(train[function])

    def part(kind: type[Part], given: Any, where: str) -> Part | None:
        """Read a training option that is outside `train` in the file."""
        return None if given is None else schema.read(kind, given, where)

    options = schema.read(
        TrainOptions,
        {
            "model_fn": project.reference(settings.model),
            **_targets(survey, labels, {name: one.threshold for name, one in settings.labels.items()}),
            "hparams": project.value(settings.hparams, survey, "hparams"),
            "feed": schema.read(FeedOptions, feed, "train"),
            "augment": part(Augment, project.value(settings.augment, survey, "augment"), "augment"),
            "normalise": part(Normalise, settings.normalise, "normalise"),
            # A table column may be named "image".
            "images": [f.output_name for f in features if isinstance(f, DecodeImage) and f.scale == "bytes"],
            **train,
        },
        "train",
    )
    if "label" in train and (len(labels) > 1 or not isinstance(options.label, str)):
        do = "name the labels at the top of the file: label: [price, sold]"
        raise InfeedError("train names the label of a config with several", where="train.label", do=do)
    if options.task == "multilabel" and survey.task != "multilabel":
        what = f"train.task is {options.task!r}, but the label {labels[0]!r} is a {survey.task}"
        raise InfeedError(what, where="train.task", do="set task: multilabel at the top of the file, or remove it")
    check_train_names(options, survey, features, own=settings.preprocessing_fn is not None)
    return options


def _targets(survey: Survey, labels: Sequence[str], thresholds: Mapping[str, float]) -> dict[str, Any]:
    """Return label, task and threshold of the options: of the only label, or an output for each."""
    if not isinstance(survey, TableSurvey) or len(labels) == 1:
        own = {"threshold": thresholds[labels[0]]} if labels[0] in thresholds else {}
        return {"label": labels[0], "task": survey.task, **own}
    tasks = {one.column.name: one.task for one in survey.labels}
    return {"label": {name: {"task": tasks[name], "threshold": thresholds[name]} for name in labels}}


def check_train_names(options: TrainOptions, survey: Survey, features: Sequence[Feature], *, own: bool) -> None:
    """Raise InfeedError if a training option names a class, feature or split that does not exist.

    If `own`, a user's function adds features with unknown names to `features`.
    """
    for output, weights in options.class_weights.items():
        option = f"class_weight.{output}" if output else "class_weight"
        _check_classes(weights, options.outputs[output].feature, option, survey, features)
    if shares := options.feed.class_shares:
        _check_classes(shares, options.only_label, "class_shares", survey, features)
    schema.check_known(options.feed.mix, [TRAIN], "train.mix", "split for training")
    if own or options.input_fn:
        return
    named = {feature.output_name: feature for feature in features}
    weight, bucket_by = ([name] if name else [] for name in (options.feed.weight, options.feed.bucket_by))
    schema.check_known(weight, named, "train.weight", "feature")
    if weight and isinstance(named[weight[0]], ZScore):
        what = f"the weight {weight[0]!r} is scaled to mean 0, but weights must not be negative"
        raise InfeedError(what, where="train.weight", do=f"declare it unscaled, for example Fill({weight[0]!r}, 1)")
    if weight and isinstance(one := named[weight[0]], Looked | Hash | Fill) and "float" not in one.takes:
        what = f"the weight {weight[0]!r} is a word or its number, not an amount"
        raise InfeedError(what, where="train.weight", do="use a column of numbers, for example Fill(COLUMN, 1)")
    if not options.feed.maps:  # a user's function may add features
        schema.check_known(bucket_by, named, "train.bucket_by", "feature")
        schema.check_known(options.masks, named, "train.masks", "feature")
        schema.check_known(options.boxes, named, "train.boxes", "feature")


def _check_classes(given: Any, label: str, option: str, survey: Survey, features: Sequence[Feature]) -> None:
    labels = survey.labels if isinstance(survey, TableSurvey) else ()
    classes = next((one.classes for one in labels if one.column.name == label), survey.classes)
    if given and not classes:
        what = f"the label is a quantity and has no classes: {given}"
        raise InfeedError(what, where=f"train.{option}", do="leave it out")
    keeps = any(isinstance(one, Label) and one.output_name == label and not one.clean for one in features)
    if isinstance(given, Mapping) and keeps:  # cleaning may rename and join classes
        schema.check_known(given, classes, f"train.{option}", "class")
