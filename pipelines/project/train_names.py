"""Check the classes, features and splits that training options name, before any node runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import Fill
from infeed.components.transform.kinds.encode import Hash, Looked
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore
from infeed.pipelines.config import TRAIN
from infeed.pipelines.surveys import Survey, TableSurvey


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
    if not own and not options.input_fn:
        _check_features(options, {feature.output_name: feature for feature in features})


def _check_classes(given: Any, label: str, option: str, survey: Survey, features: Sequence[Feature]) -> None:
    labels = survey.labels if isinstance(survey, TableSurvey) else ()
    classes = next((one.classes for one in labels if one.column.name == label), survey.classes)
    if given and not classes:
        raise InfeedError(
            f"the label is a quantity and has no classes: {given}", where=f"train.{option}", do="leave it out"
        )
    keeps = any(isinstance(one, Label) and one.output_name == label and not one.clean for one in features)
    if isinstance(given, Mapping) and keeps:  # cleaning may rename and join classes
        schema.check_known(given, classes, f"train.{option}", "class")


def _check_features(options: TrainOptions, features: Mapping[str, Feature]) -> None:
    weight, bucket_by = ([name] if name else [] for name in (options.feed.weight, options.feed.bucket_by))
    schema.check_known(weight, features, "train.weight", "feature")
    if weight and isinstance(features[weight[0]], ZScore):
        what = f"the weight {weight[0]!r} is scaled to mean 0, but weights must not be negative"
        raise InfeedError(what, where="train.weight", do=f"declare it unscaled, for example Fill({weight[0]!r}, 1)")
    if weight and isinstance(one := features[weight[0]], Looked | Hash | Fill) and "float" not in one.takes:
        what = f"the weight {weight[0]!r} is a word or its number, not an amount"
        raise InfeedError(what, where="train.weight", do="use a column of numbers, for example Fill(COLUMN, 1)")
    if not options.feed.maps:  # a user's function may add features
        schema.check_known(bucket_by, features, "train.bucket_by", "feature")
        schema.check_known(options.masks, features, "train.masks", "feature")
        schema.check_known(options.boxes, features, "train.boxes", "feature")
