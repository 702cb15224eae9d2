"""Exit codes of the commands (docs/command-line.md), and errors without tracebacks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import click

from infeed.components.base.errors import InfeedError, naming_extras
from infeed.components.dataset import files
from infeed.pipelines.console.paths import check_paths
from infeed.pipelines.console.terminal import echo

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_NOT_BLESSED, EXIT_LOST = 1, 2, 3, 4
EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # as in shells: 128 + SIGINT
EXIT_CODES = {
    0: "success",
    EXIT_FAILED: "the work failed, or the command found a problem",
    EXIT_BAD_INPUT: "an option, a file or the data is invalid",
    EXIT_NOT_BLESSED: "the model is not good enough to be blessed",
    EXIT_LOST: "a remote run was or may have been started, and its result is unknown",
    EXIT_DEFECT: "a defect of this package",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP",
}
# System errors about a user's path: missing, existing, too long, or without permission.
_OF_PATHS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENODEV),
}
_DEBUG = "infeed.debug"
_NO_MEMORY = InfeedError(
    "there is not enough memory", do="close other programs, or use smaller files or batches. --debug shows the location"
)
_REPEAT_AFTER = 0.2  # seconds until an ignored Ctrl-C is repeated


class LostError(InfeedError):
    """A remote run may have started. Submitting it again could start it twice."""


@contextlib.contextmanager
def errors(as_json: bool, debug: bool) -> Iterator[None]:
    """Print errors without a traceback, and exit with the codes above.

    A path that the system rejects is invalid input. Any other exception is a defect of infeed.
    """
    try:
        with naming_extras():
            yield
    except (InfeedError, MemoryError) as raised:
        if debug:
            raise
        error = raised if isinstance(raised, InfeedError) else _NO_MEMORY
        _print(error, as_json)
        sys.exit(EXIT_LOST if isinstance(error, LostError) else EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as raised:  # last resort: report any other exception as a defect
        if debug or (isinstance(raised, OSError) and raised.errno in (errno.EPIPE, errno.ENOSPC)):
            raise
        if isinstance(raised, OSError) and raised.filename and raised.errno in _OF_PATHS:
            do = "use another path, or change its permissions"
            _print(InfeedError(str(raised.strerror), where=str(raised.filename), do=do), as_json)
            sys.exit(EXIT_BAD_INPUT)
        if isinstance(raised, FileNotFoundError) and _is_cwd_removed():
            _print(InfeedError("the current folder was removed", do="change to another folder"), as_json)
            sys.exit(EXIT_BAD_INPUT)
        if sys.flags.optimize > 1 and isinstance(raised, TypeError | AttributeError):
            what = f"a package needs its docstrings: {type(raised).__name__}: {raised}"
            _print(InfeedError(what, where="python -OO", do="use python -O, or neither"), as_json)
            sys.exit(EXIT_BAD_INPUT)
        with tempfile.NamedTemporaryFile("w", prefix="infeed-defect-", suffix=".log", delete=False) as log:
            log.write(files.masked("".join(traceback.format_exception(raised))))
        what = files.masked(f"this is a defect of infeed: {type(raised).__name__}: {raised}")
        _print(InfeedError(what, where=f"traceback in {log.name}", do="report it with that file"), as_json)
        sys.exit(EXIT_DEFECT)


@contextlib.contextmanager
def _raising_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, SIGTERM or SIGHUP in the body of a command, which then cleans up.

    Outside of the body, the process just ends.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` ignores it, so that a command outlives its terminal
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _no_tracebacks_of_pools(debug: bool) -> Iterator[None]:
    """Hide the traceback of a pool's thread that may start no other thread: the command's own error says it."""
    before = threading.excepthook

    def show(failed: threading.ExceptHookArgs) -> None:
        if debug or "can't start new thread" not in str(failed.exc_value):
            before(failed)

    threading.excepthook = show
    try:
        yield
    finally:
        threading.excepthook = before


def _is_cwd_removed() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _print(error: InfeedError, as_json: bool) -> None:
    if as_json:
        told = {"what": error.what, "where": error.where, "do": error.do}
        echo(json.dumps({"error": {name: files.masked(text) for name, text in told.items()}}))
    else:
        echo(f"error: {files.masked(str(error))}", err=True)


class Command(click.Command):
    """Click command with the option `--debug`, which shows tracebacks. With `--json`, errors are JSON.

    Args:
      examples: command lines at the end of the help.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **given: Any) -> None:
        super().__init__(*args, **given)
        self.examples = examples
        debug = click.Option(["--debug"], is_flag=True, help="Show tracebacks.", expose_value=False)
        debug.callback = lambda ctx, _, value: ctx.meta.update({_DEBUG: value})
        self.params.append(debug)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")  # never wrapped

    def invoke(self, ctx: click.Context) -> Any:
        debug = ctx.meta[_DEBUG]
        with errors(ctx.params.get("as_json", False), debug), _raising_interrupts(), _no_tracebacks_of_pools(debug):
            check_paths(self.params, ctx)
            return super().invoke(ctx)


def debugging() -> bool:
    """Return whether the current command has the option `--debug`."""
    return bool(click.get_current_context().meta[_DEBUG])


@contextlib.contextmanager
def interruptible(words: str) -> Iterator[None]:
    """On Ctrl-C or SIGTERM, print `words` and exit with 130. A command without words is only `interrupted`."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"interrupted: {words}", err=True)
        sys.exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Keep Ctrl-C working during the imports of TFX and TensorFlow, which take seconds and swallow exceptions.

    The signal is repeated until an exception leaves the body.
    """
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        signal.setitimer(signal.ITIMER_REAL, _REPEAT_AFTER)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGALRM)}
    timer = signal.setitimer(signal.ITIMER_REAL, 0)  # the caller's, which waits meanwhile
    try:
        yield
    except Exception:  # after Ctrl-C, partially imported modules may raise anything
        if not interrupted:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    if interrupted:
        raise KeyboardInterrupt
