"""The one error a user is meant to read: what was wrong, where, and what to do about it.

Errors of others become it: what another process tells of, as text, and what is not installed. The core reads, writes
and loads datasets; training needs TensorFlow, and pipelines need TFX. Their modules are imported when they are asked
for, and the error then names the extra that brings them: `pip install 'tfx-infeed[tfx]'`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_INDENT = " " * 9  # of the second line of `where` and `do` and those after it; tells them from what follows the error
_LINES = rf"[^\n]*(?:\n{_INDENT}[^\n]*)*"
_TOLD = re.compile(
    r"\bInfeedError: (?P<what>(?:(?!\nTraceback \().)*?)"
    rf"(?:\n  where: (?P<where>{_LINES}))?\n  do:    (?P<do>{_LINES})"
    rf"(?=\Z|\n(?!  where: |  do:    |{_INDENT}))",  # else they are of an error that `what` tells of
    re.DOTALL,
)
_STEP = re.compile(r" \[while running '[^\n]*")  # which Beam writes behind the message
_QUOTE_ENDS = re.compile(r"['\"][)\]},]*$")
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|x[0-9a-f]{2}|.)", re.IGNORECASE)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
# Top-level module -> how people call it, and what brings it.
_EXTRAS = {
    "keras": ("Keras", "'tfx-infeed[tf]'"),
    "tensorflow": ("TensorFlow", "'tfx-infeed[tf]'"),
    "sqlalchemy": ("SQLAlchemy", "'tfx-infeed[sql]'"),
    "tensorflow_text": ("tensorflow-text", "'tfx-infeed[text]'"),
    "torch": ("PyTorch", "torch"),
    "jax": ("JAX", "jax"),
    **{
        module: (name, "'tfx-infeed[tfx]'")
        for module, name in {
            "apache_beam": "Apache Beam",
            "celpy": "cel-python",
            "google": "Google Cloud's client",
            "kfp": "Kubeflow Pipelines' SDK",
            "ml_metadata": "ML Metadata",
            "packaging": "packaging",
            "sklearn": "scikit-learn",
            "tfx": "TFX",
        }.items()
    },
    **{
        module: (name, "'tfx-infeed[steps]'")
        for module, name in {
            "matplotlib": "Matplotlib",
            "tensorflow_data_validation": "TensorFlow Data Validation",
            "tensorflow_metadata": "tensorflow-metadata",
            "tensorflow_model_analysis": "TensorFlow Model Analysis",
            "tensorflow_transform": "TensorFlow Transform",
            "tfx_bsl": "tfx-bsl",
        }.items()
    },
}


class InfeedError(Exception):
    """Bad input, bad options or a machine that cannot do what was asked; never a bug of ours.

    The command line prints it without a traceback and exits with code 2.

    Args:
      what: what was wrong, with the offending value.
      where: file, row, column, split or option it was found in; empty where that is plain from `what`.
      do: what the user can do about it.
    """

    def __init__(self, what: str, *, where: str = "", do: str) -> None:
        self.what = what
        self.where = where
        self.do = do
        lines = [what, f"  where: {_indented(where)}" if where else "", f"  do:    {_indented(do)}"]
        super().__init__("\n".join(line for line in lines if line))

    def __reduce__(self) -> tuple[object, ...]:
        # Beam and multiprocessing pickle exceptions; keyword-only arguments need help with that.
        return (_rebuild, (self.what, self.where, self.do))

    @staticmethod
    def told_in(text: str) -> InfeedError | None:
        r"""The error that a text tells of, the last if there are several; None where it tells no whole one.

        The text is a log or the traceback of another process, with what Beam and its runners put round it: the name of
        a step, a stack of Java, quotes with `\n` for the end of a line.
        """
        for quoted in (False, True, True):
            text = _unquoted(text) if quoted else text
            if told := list(_TOLD.finditer(text)):
                return _error(told[-1], quoted)
        return None


class ReadFailedError(InfeedError):
    """A read that failed for a reason outside of the file, such as a lost connection; it may succeed later."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.what, self.where, self.do, ReadFailedError))


class OptionError(InfeedError, ValueError):
    """An option that cannot be. `schema.read`, which makes options of files, adds where in the file it stands.

    A ValueError as well, since that is what pydantic takes from a `__post_init__`.

    Args:
      option: its name; empty where the error is about several.
    """

    def __init__(self, what: str, *, where: str, do: str, option: str = "") -> None:
        super().__init__(what, where=where, do=do)
        self.option = option


def infeed_error(error: BaseException) -> InfeedError | None:
    """The InfeedError that `error` is, comes from, or tells of: another process often hands on nothing but text."""
    links = list(_links(error))
    raised = (link for link in links if isinstance(link, InfeedError))
    return next(raised, None) or next(filter(None, (InfeedError.told_in(str(link)) for link in links)), None)


def required(module: str) -> Any:
    """The module of this name.

    Raises:
      InfeedError: it is not installed, and how it can be.
    """
    with naming_extras():
        return importlib.import_module(module)


@contextmanager
def naming_extras() -> Iterator[None]:
    """For imports inside: of what is not installed the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        if top not in _EXTRAS:
            raise
        name, brought_by = _EXTRAS[top]
        raise InfeedError(f"{name} is not installed", do=f"pip install {brought_by}") from error


def _links(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _error(told: re.Match[str], quoted: bool) -> InfeedError:
    where, do = ((told[name] or "").replace(f"\n{_INDENT}", "\n") for name in ("where", "do"))
    if quoted and told.end() == len(told.string):
        do = _QUOTE_ENDS.sub("", do)
    return InfeedError(told["what"], where=where, do=_STEP.sub("", do))


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1]) or _character(found[1]), text)


def _character(escape: str) -> str:
    return chr(int(escape[1:], 16)) if len(escape) > 1 else escape


def _indented(text: str) -> str:
    return text.replace("\n", f"\n{_INDENT}")


def _rebuild(what: str, where: str, do: str, kind: type[InfeedError] = InfeedError) -> InfeedError:
    return kind(what, where=where, do=do)
