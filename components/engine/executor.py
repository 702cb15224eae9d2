"""Base of executors that run TFX's work on an engine and fall back to TFX's executor on Beam."""

from __future__ import annotations

import copy
import importlib
import logging
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_executor

from infeed.components.dataset import files
from infeed.components.engine.beam_runner import pipeline_of, without_ours
from infeed.components.engine.choice import Cluster
from infeed.components.seams import tfx as tfx_seam

# Format properties of Examples. TFX's ExampleGen sets them only for other formats. File name patterns are unsupported.
_FILE_FORMATS = ("tfrecords_gzip", "FORMAT_TFRECORDS_GZIP", "FILE_FORMAT_UNSPECIFIED")
_log = logging.getLogger(__name__)

Artifacts = dict[str, list[types.Artifact]]  # arguments of `Do`: artifacts by the names of inputs or outputs


class EngineExecutor(base_beam_executor.BaseBeamExecutor):
    """Executor that starts without Beam, and passes Beam's options to its engine and to TFX's own executor."""

    def __init__(self, context: base_beam_executor.BaseBeamExecutor.Context | None = None) -> None:
        """Hide Beam's options from TFX until Beam is needed, because TFX packages its sources for any option."""
        self._given = copy.copy(context) or base_beam_executor.BaseBeamExecutor.Context()
        without_beam = copy.copy(self._given)
        without_beam.beam_pipeline_args, without_beam.make_beam_pipeline_fn = None, self.make_pipeline
        super().__init__(without_beam)

    def cluster(self, output: types.Artifact) -> Cluster:
        """Return access to the runner in Beam's options. Results travel through the output's folder."""
        return Cluster(self._given.beam_pipeline_args or [], self.make_pipeline, files.absolute(output.uri))

    def make_pipeline(self) -> Any:
        """Make a pipeline as TFX's executors do. If there are options, include TFX's sources and labels."""
        if self._given.make_beam_pipeline_fn:
            return self._given.make_beam_pipeline_fn()
        if not tfx_seam.BEAM_OPTIONS.usable():
            return pipeline_of(self._given.beam_pipeline_args or [])
        added = tfx_seam.beam_options(self)  # options that `Do` has added, such as a user's module
        return pipeline_of([*tfx_seam.beam_options(_Beam(self._for_tfx())), *added])

    def _for_tfx(self) -> base_beam_executor.BaseBeamExecutor.Context:
        """Return the context without this package's options, because Beam would warn about unknown options."""
        context = copy.copy(self._given)
        context.beam_pipeline_args = without_ours(context.beam_pipeline_args or [])
        return context

    def temporary_folder(self) -> str:
        """Return a temporary folder. TFX removes it after the execution, or this process removes it at its end."""
        try:
            return self._given.get_tmp_path()  # type: ignore[no-any-return]
        except RuntimeError:
            return files.folder_until_exit("infeed-execution-")

    def leave_to_tfx(self, component: str, what: str, reason: object, *arguments: Any) -> None:
        """Fall back to the executor of a package in `tfx.components`, on the runner in the options, and log a warning.

        `what` is the work, such as "statistics are computed", and `reason` why this executor cannot do it.
        """
        _log.warning("%s by TFX's own executor on Beam: %s", what, reason)
        kind = importlib.import_module(f"tfx.components.{component}.executor").Executor  # takes seconds
        context = self._for_tfx()
        if not context.make_beam_pipeline_fn and tfx_seam.BEAM_OPTIONS.usable():
            # Read the options late, because `Do` may add a user's module to them.
            context.make_beam_pipeline_fn = lambda: pipeline_of(tfx_seam.beam_options(executor))
        executor: Any = kind(context)
        with tempfile.TemporaryDirectory(prefix="infeed-inputs-") as folder:
            # TensorFlow cannot open the URIs of some stores.
            for number, artifact in enumerate(artifact for found in arguments[0].values() for artifact in found):
                if not files.tensorflow_opens(artifact.uri):
                    _log.info("downloading %s", artifact.uri)
                    local = files.join(folder, str(number))
                    files.copy(artifact.uri, local)
                    artifact.uri = local
            executor.Do(*arguments)


class _Beam(base_beam_executor.BaseBeamExecutor):
    """Adds TFX's sources and labels to the options of a context, as TFX's executors do."""

    def Do(self, *arguments: Any) -> None:
        raise NotImplementedError


def unread_format(examples: Iterable[types.Artifact], payloads: Sequence[str] = ("FORMAT_TF_EXAMPLE",)) -> str:
    """Return the property of these Examples that only TFX supports. "" for TFRecords that this package can read.

    `payloads` are payload formats that the caller supports, by TFX's names.
    """
    readable = {"payload_format": payloads, "file_format": _FILE_FORMATS, "custom_split_pattern": ()}
    for artifact in examples:
        for name, values in readable.items():
            if artifact.has_custom_property(name) and artifact.get_string_custom_property(name) not in values:
                return f"{name} of the examples is {artifact.get_string_custom_property(name)!r}"
    return ""
