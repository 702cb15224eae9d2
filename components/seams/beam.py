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
    """Give pipelines that are made inside and name no runner this one.

    It is Beam's default and not an option, because TFX packs its own sources anew for any option that a component gets,
    which takes two seconds a node.
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
    """Make the arguments optional again that tft 1.16 leaves out.

    tft copies a part of Beam's graph for the second phase of an analysis, by a class that is internal to Beam. Beam
    2.63 made the last two arguments of the class required, and tft passes them since 1.17. Beam 2.62 would do for tft,
    but its Dask runner takes no size of partitions, and its cloudpickle holds Dask at 2024.8. Any other tft or class is
    left alone.
    """
    if not metadata.version("tensorflow-transform").startswith("1.16."):
        return
    constructor = getattr(copies.beam_pipeline, "AppliedPTransform", object).__init__
    last = inspect.getfullargspec(constructor).args[-2:]
    if last == ["environment_id", "annotations"] and not constructor.__defaults__:
        constructor.__defaults__ = (None, None)
