"""Build the image of the tests from a folder with a Dockerfile, with the engine and the pip settings of `infeed build`.

build_suite.py CONTEXT TAG SCRATCH: pip's settings are written to the folder SCRATCH, which is not part of the image.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from infeed.pipelines.cluster.containers import Engine, find_engine
from infeed.pipelines.cluster.image.build import pip_secrets


def command(engine: Engine, context: str, tag: str, scratch: Path) -> list[str]:
    """Return the command that builds the stage `suite`."""
    return engine.build(context, tag, arguments={}, secrets=pip_secrets(scratch), target="suite")


if __name__ == "__main__":
    done = subprocess.run(
        command(find_engine(), sys.argv[1], sys.argv[2], Path(sys.argv[3])), capture_output=True, text=True
    )
    if done.returncode:
        print(done.stdout[-3000:] + done.stderr[-3000:], end="")
    sys.exit(done.returncode)
