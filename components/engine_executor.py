"""Base of executors that run TFX's work on an engine and fall back to TFX's executor on Beam."""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_executor

from infeed.components.beam_runner import pipeline_of
from infeed.components.dataset import files
from infeed.components.engine.choice import Cluster

# Properties of Examples that say what their files hold. Those that TFX's ExampleGen has written name a format only
# where it is another than this one; no pattern of file names is followed.
_FILE_FORMATS = ("tfrecords_gzip", "FORMAT_TFRECORDS_GZIP", "FILE_FORMAT_UNSPECIFIED")
_PAYLOAD, _FILE_FORMAT, _PATTERN = "payload_format", "file_format", "custom_split_pattern"
_log = logging.getLogger(__name__)

Artifacts = dict[str, list[types.Artifact]]  # what `Do` is given: artifacts by the names of inputs or outputs


class EngineExecutor(base_beam_executor.BaseBeamExecutor):
    """An executor that starts without Beam, and has Beam's options for its engine and for TFX's own executor."""

    def __init__(self, context: base_beam_executor.BaseBeamExecutor.Context | None = None) -> None:
        """For any option of Beam's, TFX packs its sources anew: that is left to when Beam is needed."""
        without_beam = copy.copy(context)
        if without_beam:
            without_beam.beam_pipeline_args = None
        super().__init__(without_beam)
        self._given = context

    def cluster(self, output: types.Artifact) -> Cluster:
        """The way to the runner that Beam's options name; results of workers travel through the output's folder."""
        options = getattr(self._given, "beam_pipeline_args", None) or []
        return Cluster(options, self._make_beam_pipeline, files.absolute(output.uri))

    def _make_beam_pipeline(self) -> Any:
        made = _Beam(self._given)
        made._beam_pipeline_args += self._beam_pipeline_args  # what `Do` has added, such as a user's module
        return made.make_pipeline()

    def leave_to_tfx(self, component: str, what: str, reason: object, *arguments: Any) -> None:
        """Calls TFX's own executor with the arguments of `Do`, on the runner that the options name, and says so.

        Args:
          component: package of `tfx.components` that it lies in; imported only now, for that takes seconds.
          what: is done by it, such as "statistics are computed".
          reason: why it cannot be done here.
        """
        _log.warning("%s by TFX's own executor on Beam: %s", what, reason)
        executor = importlib.import_module(f"tfx.components.{component}.executor").Executor(self._given)
        if not getattr(self._given, "make_beam_pipeline_fn", None):
            # The options are read late: `Do` may add a user's module to them.
            executor._make_beam_pipeline = lambda: pipeline_of(executor._beam_pipeline_args)
        executor.Do(*arguments)


class _Beam(base_beam_executor.BaseBeamExecutor):
    """Makes pipelines as TFX's executors do: with TFX's own sources packed, and labels added, if options are given."""

    def make_pipeline(self) -> Any:
        return self._make_beam_pipeline_fn() if self._make_beam_pipeline_fn else pipeline_of(self._beam_pipeline_args)

    def Do(self, *arguments: Any) -> None:
        raise NotImplementedError


def unread_format(examples: Iterable[types.Artifact], payloads: Sequence[str] = ("FORMAT_TF_EXAMPLE",)) -> str:
    """What of these Examples is read by TFX alone, in words; empty where they are TFRecords that can be read here.

    Args:
      examples: Examples artifacts.
      payloads: formats of a record that the caller reads, by TFX's names.
    """
    readable = {_PAYLOAD: payloads, _FILE_FORMAT: _FILE_FORMATS, _PATTERN: ()}
    for artifact in examples:
        for name, values in readable.items():
            if artifact.has_custom_property(name) and artifact.get_string_custom_property(name) not in values:
                return f"{name} of the examples is {artifact.get_string_custom_property(name)!r}"
    return ""
