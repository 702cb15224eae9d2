"""The public names for pipeline authors: `from infeed.components import CsvExampleGen, Transform, Trainer`.

`__init__.pyi` lists the names. Each is imported on first use, because the components need TFX, which takes many seconds
to import. Options, features and errors do not need TFX.

Importing any module of this package imports `pyarrow_hotfix` first: pyarrow before 14.0.1 unpickles column types from
Parquet and Arrow files, and so executes code from the file (CVE-2023-47248). The fix protects the whole process,
including readers of TFX and Beam. `seams.beam.allow_copies` is registered too: it makes two-phase analyses of tft 1.16
work when tft is imported, also for TFX's own Transform.
"""

from typing import Any

import lazy_loader
import pyarrow_hotfix as pyarrow_hotfix

from infeed.components.seams import beam as beam_seam
from infeed.components.seams.seam import after_import

after_import(beam_seam.COPYING_MODULE, beam_seam.allow_copies)

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    from infeed.components.base.errors import naming_extras

    with naming_extras():
        return _imported(name)
