"""Check that a trained model has no NaN before it is exported."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.data import packing_of
from infeed.components.trainer.training import Training

_BATCHES = 100  # maximum batches that are searched for non-finite values
_log = logging.getLogger(__name__)


class NaNError(InfeedError):
    """Training ended with a NaN loss or NaN weights."""

    def __reduce__(self) -> tuple[object, ...]:
        return partial(NaNError, where=self.where, do=self.do), (self.what,)


def check_trained(training: Training, model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Raise NaNError if the weights are NaN, or the last loss is, unless a callback restored earlier weights."""
    losses = model.history.history.get("loss", [])
    wrong = [weight.path for weight in model.trainable_weights if _has_nan(weight)]
    diverged = bool(losses) and math.isnan(losses[-1])
    restored = any(getattr(one, "restore_best_weights", False) for one in callbacks)
    if wrong or (diverged and not restored):
        raise _error(training, losses, wrong)
    if diverged:
        _log.warning("%s; the model has the weights of an earlier epoch", _when(losses))


def _error(training: Training, losses: Sequence[float], wrong: Sequence[str]) -> NaNError:
    what = _when(losses) or f"{len(wrong)} weights have NaN, such as {wrong[0]}"
    what += ", so the model would predict NaN and is not exported"
    if names := _not_finite(training):
        do = f"the batches contain NaN or infinite values in {', '.join(names)}: fill or clean them in Transform"
    else:
        do = "lower the learning rate, or clip the gradients: keras.optimizers.Adam(1e-4, clipnorm=1.0)"
    return NaNError(what, where=training.options.model_fn, do=do)


def _when(losses: Sequence[float]) -> str:
    first = next((number for number, loss in enumerate(losses, 1) if math.isnan(loss)), None)
    return f"the loss is NaN from epoch {first} of {len(losses)} on" if first else ""


def _has_nan(weight: Any) -> bool:
    value = tf.convert_to_tensor(keras.ops.convert_to_numpy(weight))
    return value.dtype.is_floating and bool(tf.reduce_any(tf.math.is_nan(value)))


def _not_finite(training: Training) -> list[str]:
    """Return the features, `the label` and `the weight` with non-finite values in the first batches."""
    packing, found = packing_of(training.graph, training.options), dict[str, None]()
    for features, *others in itertools.islice(training.train.dataset(workers=training.workers), _BATCHES):
        named = {**packing.unpack(features), **dict(zip(("the label", "the weight"), others, strict=False))}
        parts = ((name, part) for name, one in named.items() for part in tf.nest.flatten(one, expand_composites=True))
        found |= dict.fromkeys(
            name for name, part in parts if part.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(part))
        )
    return list(found)
