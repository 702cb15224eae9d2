"""Entry point of the command `infeed` and of `python -m infeed`."""

import os
import signal
from typing import Any

_INTERRUPTED = 130  # as in `infeed.pipelines.console.exit_codes`, which takes a second to import


def main() -> None:
    """Run the command. During imports, Ctrl-C ends the process directly, because they may swallow KeyboardInterrupt."""
    signal.signal(signal.SIGINT, _end)
    from infeed.pipelines.cli import main as command

    signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def _end(*_: Any) -> None:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
