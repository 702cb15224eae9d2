"""Measurements after a training: the step without input, the stages, and trials of changes if training waited."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from contextlib import closing

import tensorflow as tf

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import WAITS_FROM, InputProfile
from infeed.components.feed import measure
from infeed.components.feed.trials import try_changes
from infeed.components.trainer import distribution, loop
from infeed.components.trainer.training import Training

# Preparation of the stage measurement takes two to four seconds more.
_STAGES_FROM, _STAGES_SHARE, _MOST_STAGE_SECONDS = 120.0, 0.015, 4.0
_STAGE_TURNS = 5
# Maximum share of a training for stages and trials. A trial measures up to three pipelines, and reads the rows that a
# change keeps in memory.
_MOST_SHARE, _TRIAL_PARTS, _LEAST_TRIAL_SECONDS = 0.04, 8, 0.5
_log = logging.getLogger(__name__)


def write_profile(training: Training, fitted: loop.Fitted, folder: str) -> None:
    """Write `input_profile.json`. This continues training, so the model must already be saved."""
    progress.report("measuring the rate of the step without input")
    strategy, plan = training.strategy, training.train.plan
    ceiling = loop.measure_believable_ceiling(fitted, strategy, plan.batch.size)
    profile = InputProfile(
        strategy=distribution.strategy_name(strategy),
        replicas=strategy.num_replicas_in_sync,
        hosts=training.workers.count,
        batch_size=plan.batch.size,
        steps_per_epoch=plan.steps_per_epoch,
        epochs=fitted.epochs,
        ceiling=ceiling,
        plan=plan.summary(),
        bytes=plan.bytes,
        timeline=fitted.timeline,
    )
    write_profile_of(training, profile, folder)


def write_profile_of(training: Training, profile: InputProfile, folder: str) -> None:
    """Write the profile, with the stages of the input pipeline, and its numbers for TensorBoard."""
    profile = _with_stages(training, profile)
    profile.write(folder)
    if training.workers.index:
        return
    # The rate and the waited share of each epoch, next to the logs of Keras.
    try:
        with closing(tf.summary.create_file_writer(os.path.join(folder, "input"))) as writer, writer.as_default():
            for epoch in profile.epochs:
                tf.summary.scalar("input/wait_fraction", profile.wait_fraction([epoch]), step=epoch.epoch)
                tf.summary.scalar("input/examples_per_second", epoch.examples_per_second, step=epoch.epoch)
    except (tf.errors.OpError, OSError) as error:  # a finished training must not fail because of its logs
        _log.warning("cannot write the input scalars for TensorBoard: %s", error)


def _with_stages(training: Training, profile: InputProfile) -> InputProfile:
    """Return the profile with the cost of each stage and, if training waited, with trials of changes.

    Both are omitted if they would take too long.
    """
    given, feed = training.options.stage_seconds, training.train
    trained, started = sum(epoch.seconds for epoch in profile.epochs), time.monotonic()
    share = min(_MOST_STAGE_SECONDS, _STAGES_SHARE * trained) if trained >= _STAGES_FROM else 0.0
    seconds = share if given is None else given
    plan = measure.short_plan(feed.plan) if seconds and feed.functions and training.workers.count == 1 else None
    if plan is None or feed.functions is None or feed.replan is None:
        return profile
    progress.report(f"measuring the stages of the input pipeline for about {seconds:.0f} s")
    try:
        cuts = measure.plan_cuts(plan, feed.functions)
        stages = measure.measure(cuts, seconds=seconds, turns=_STAGE_TURNS).stages
        profile = dataclasses.replace(profile, stages=stages)
        # Changes of the input cannot speed up a training that did not wait for it.
        if profile.wait_fraction(profile.steady_epochs) < WAITS_FROM:
            return profile
        left = _MOST_SHARE * trained - (time.monotonic() - started)
        seconds = min(_MOST_STAGE_SECONDS, left / _TRIAL_PARTS) if given is None else given
        if seconds < _LEAST_TRIAL_SECONDS and given is None:
            return profile
        progress.report("trying changes of the input pipeline")
        base = dataclasses.replace(measure.rival_cut(cuts), rival=False)
        trials = try_changes(
            stages, base, training.options.feed, feed.replan, feed.functions, seconds=seconds, turns=_STAGE_TURNS
        )
        return dataclasses.replace(profile, trials=trials)
    # A failed measurement must not fail a finished training.
    except (tf.errors.OpError, ValueError, InfeedError) as error:
        _log.warning("the measurement of the input pipeline stopped early: %s", error)
        return profile
