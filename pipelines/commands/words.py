"""What several commands say: paths and commands that can be pasted."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def command() -> str:
    """How this program was called, so that the line can be pasted."""
    return "infeed" if shutil.which("infeed") else os.path.relpath(sys.argv[0])


def short(path: str | Path) -> str:
    """Relative where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
