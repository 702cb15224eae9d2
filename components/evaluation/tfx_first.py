"""Import TFX, if installed, before TFMA. On TFX 1.21, the import of TFX fails after that of TFMA."""

import importlib.util

if importlib.util.find_spec("tfx"):
    import tfx.components  # noqa: F401
