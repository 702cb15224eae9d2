"""Make two-phase analyses of tft 1.16 work on Beam 2.63 and newer, where tft raises a TypeError.

tft copies a part of Beam's graph for the second phase with the class AppliedPTransform of `apache_beam.pipeline`, which
is internal to Beam. Beam 2.63 made its last two arguments required, and tft passes them since 1.17. Beam 2.62 would
work with tft, but its Dask runner does not support partition sizes, and its cloudpickle requires Dask 2024.8.
"""

from __future__ import annotations

import inspect
from importlib import metadata
from types import ModuleType

COPIES = "tensorflow_transform.beam.deep_copy"  # tft's module that copies the graph
_ARGUMENTS = ["environment_id", "annotations"]


def allow_copies(copies: ModuleType) -> None:
    """Restore the default None of the arguments that tft 1.16 omits.

    Checked with tft 1.16.0, 1.17.0 and 1.21.0, and Beam 2.53 to 2.67 and 2.77. Does nothing for other versions of tft,
    or if
    Beam's class was renamed or has other arguments.

    Args:
      copies: the module `COPIES`.
    """
    if not metadata.version("tensorflow-transform").startswith("1.16."):
        return
    constructor = getattr(copies.beam_pipeline, "AppliedPTransform", object).__init__
    if inspect.getfullargspec(constructor).args[-2:] == _ARGUMENTS and not constructor.__defaults__:
        constructor.__defaults__ = (None, None)
