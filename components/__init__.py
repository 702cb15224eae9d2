"""What a pipeline author imports: `from infeed.components import CsvExampleGen, Transform, Trainer, InputReport`.

`__init__.pyi` lists the public names. Each is imported when it is first asked for: the components need TFX, which takes
many seconds to load; the options, features and errors do not.

Whatever is imported of this package, `pyarrow_hotfix` comes first: pyarrow before 14.0.1 unpickles the types of columns
that it finds in a Parquet or Arrow file, and so runs what the file says (CVE-2023-47248). It holds for the whole
process, TFX's and Beam's own readers included. So does `tft_on_beam`, without which tft 1.16 analyses no two phases: it
acts when tft is imported, before or after this package, and TFX's own Transform gains as well.
"""

from typing import Any

import lazy_loader
import pyarrow_hotfix as pyarrow_hotfix
import wrapt

from infeed.components import tft_on_beam

wrapt.register_post_import_hook(tft_on_beam.allow_copies, tft_on_beam.COPIES)

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    from infeed.components.errors import naming_extras

    with naming_extras():
        return _imported(name)
