"""Analyses of two phases by tft 1.16 on Beam 2.63 and newer, where tft by itself raises a TypeError.

tft copies a part of Beam's graph for the second phase. It makes the copies by the class AppliedPTransform of
`apache_beam.pipeline`, which is internal to Beam. Beam 2.63 made the last two arguments of that class required, and tft
passes them since 1.17. Beam 2.62 would do for tft, but its Dask runner takes no size of partitions, and its cloudpickle
holds Dask at 2024.8.
"""

from __future__ import annotations

import inspect
from importlib import metadata
from types import ModuleType

COPIES = "tensorflow_transform.beam.deep_copy"  # tft's module that makes them
_ARGUMENTS = ["environment_id", "annotations"]


def allow_copies(copies: ModuleType) -> None:
    """Give the arguments that tft 1.16 leaves out their default again, which is None.

    Read in tft 1.16.0, 1.17.0 and 1.21.0, and in Beam 2.53 to 2.67 and 2.77. Any other tft is left alone, and so is a
    class of Beam's that has been renamed or takes other arguments: tft then works or fails as it does by itself.

    Args:
      copies: the module `COPIES`.
    """
    if not metadata.version("tensorflow-transform").startswith("1.16."):
        return
    constructor = getattr(copies.beam_pipeline, "AppliedPTransform", object).__init__
    if inspect.getfullargspec(constructor).args[-2:] == _ARGUMENTS and not constructor.__defaults__:
        constructor.__defaults__ = (None, None)
