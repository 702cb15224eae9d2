"""Apache Beam: its default runner, and the copies that tft 1.16 makes of its graph."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType

from infeed.components.seams.seam import Seam

RUNNER = Seam(
    "apache-beam",
    "local runner of pipelines that name none",
    ("apache_beam.options.pipeline_options:StandardOptions.DEFAULT_RUNNER",),
    ("2.67.0", "2.77.0"),
    "pipelines without --runner use Beam's own default runner, which may download Prism",
)
COPIES = Seam(
    "apache-beam",
    "analyses of two phases by tft 1.16",
    (
        "apache_beam.pipeline:AppliedPTransform"
        "(parent, transform, full_label, main_inputs, environment_id, annotations)",
    ),
    ("2.67.0", "2.77.0"),
    "tft 1.16 raises a TypeError in an analysis of two phases that it runs on Beam",
)
COPYING_MODULE = "tensorflow_transform.beam.deep_copy"  # tft's module that copies Beam's graph


@contextmanager
def default_runner(name: str) -> Iterator[None]:
    """Set the default runner of pipelines that are created inside this context.

    The function changes Beam's default and passes no option, because TFX builds a package of its sources for every
    component with Beam options. This takes two seconds per node.
    """
    if not RUNNER.usable():
        yield
        return
    from apache_beam.options.pipeline_options import StandardOptions  # takes seconds

    before = StandardOptions.DEFAULT_RUNNER
    StandardOptions.DEFAULT_RUNNER = name
    try:
        yield
    finally:
        StandardOptions.DEFAULT_RUNNER = before


def allow_copies(copies: ModuleType) -> None:
    """Make two constructor arguments optional that tft 1.16 does not pass.

    For the second phase of an analysis, tft copies a part of Beam's graph with a class that is internal to Beam. Beam
    2.63 made the last two arguments of this class required; tft passes them since 1.17. Beam 2.62 is no alternative:
    its Dask runner has no option for the partition size, and its cloudpickle limits Dask to 2024.8. The function does
    nothing for other versions of tft and other signatures.
    """
    if not metadata.version("tensorflow-transform").startswith("1.16."):
        return
    constructor = getattr(copies.beam_pipeline, "AppliedPTransform", object).__init__
    last = inspect.getfullargspec(constructor).args[-2:]
    if last == ["environment_id", "annotations"] and not constructor.__defaults__:
        constructor.__defaults__ = (None, None)
