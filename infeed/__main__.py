"""Entry point of the command `infeed` and of `python -m infeed`."""

import os
import signal

_INTERRUPTED = 130  # as in `infeed.pipelines.console.exit_codes`, which takes a second to import


def main() -> None:
    """Run the command. Ctrl-C ends the process directly, because imports may swallow KeyboardInterrupt.

    In the body of a command, Ctrl-C raises KeyboardInterrupt: see `infeed.pipelines.console.exit_codes`.
    """
    signal.signal(signal.SIGINT, _end)
    from infeed.pipelines.cli import main as command

    command()


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
