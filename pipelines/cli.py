"""Entry point of the command `infeed`."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module

import click

from infeed.components.base.errors import InfeedError, naming_extras
from infeed.components.dataset.files import masked
from infeed.components.kubeflow import compiled_with
from infeed.pipelines.console.exit_codes import EXIT_BAD_INPUT, EXIT_CODES, EXIT_INTERRUPTED, Command, importing
from infeed.pipelines.console.terminal import echo, escape_unencodable

# In the order of the help. `infeed.pipelines.commands.NAME` is imported only when it is used, to start quickly.
_COMMANDS = (
    *("run", "runs", "new", "predict"),
    *("ingest", "inspect", "statistics", "measure", "transform", "train", "evaluate", "push", "report"),
    *("compile", "build", "rehearse", "submit", "cancel", "schema", "doctor"),
)


class _Commands(click.Group):
    """Group of the commands. A full disk, as in `infeed ... > /dev/full`, ends a command without a traceback.

    Errors of options show paths without the passwords in them.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        try:
            with naming_extras(), importing():
                return import_module(f"infeed.pipelines.commands.{name}").command  # type: ignore[no-any-return]
        except InfeedError as error:
            return _refusing(name, error)
        except KeyboardInterrupt:
            echo("interrupted", err=True)
            sys.exit(EXIT_INTERRUPTED)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = masked(error.message)  # type: ignore[misc]  # final only for type checkers
            raise
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # Discard the rest of stdout, which Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            where = error.filename or "standard output"
            echo(f"error: {error.strerror}\n  where: {where}\n  do:    make room", err=True)
            sys.exit(EXIT_BAD_INPUT)


def _refusing(name: str, error: InfeedError) -> click.Command:
    """Return a command that raises the error of a missing dependency, so that `infeed --help` still works."""

    def refuse(rest: tuple[str, ...]) -> None:
        raise error

    anything = click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)
    taken = {"ignore_unknown_options": True}
    return Command(name, callback=refuse, params=[anything], context_settings=taken, short_help=f"Needs {error.do}.")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tfx-infeed")
def main() -> None:
    """TFX components that keep accelerators fed.

    \b
    infeed new tabular taxi      create a project from a template
    infeed run taxi/config.yaml  train, evaluate and push on this machine
    infeed doctor                check what this machine can do

    \b
    Completion of commands, options and paths, for bash, zsh or fish:
    eval "$(_INFEED_COMPLETE=bash_source infeed)"
    """
    escape_unencodable()
    compiled_with.warn()  # a compiled step may run this command in an image of other versions
