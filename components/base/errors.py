"""User-facing errors: what is wrong, where, and how to fix it.

This module also restores errors from the output of other processes, and reports missing dependencies. The core
reads, writes and loads datasets. Training needs TensorFlow, and pipelines need TFX. Their modules are imported on
demand, and the error names the extra to install: `pip install 'tfx-infeed[tfx]'`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_INDENT = " " * 9  # of the second and later lines of `where` and `do`; separates them from text after the error
_LINES = rf"[^\n]*(?:\n{_INDENT}[^\n]*)*"
_TOLD = re.compile(
    r"\bInfeedError: (?P<what>(?:(?!\nTraceback \().)*?)"
    rf"(?:\n  where: (?P<where>{_LINES}))?\n  do:    (?P<do>{_LINES})"
    rf"(?=\Z|\n(?!  where: |  do:    |{_INDENT}))",  # otherwise the match is an error that `what` quotes
    re.DOTALL,
)
_STEP = re.compile(r" \[while running '[^\n]*")  # Beam appends this to the message
_QUOTE_ENDS = re.compile(r"['\"][)\]},]*$")
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|x[0-9a-f]{2}|.)", re.IGNORECASE)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
# Package to install -> top-level module -> name.
_EXTRAS = {
    "'tfx-infeed[tf]'": {"keras": "Keras", "tensorflow": "TensorFlow"},
    "'tfx-infeed[kubeflow]'": {"kubernetes": "Kubernetes' client"},
    "'tfx-infeed[sql]'": {"sqlalchemy": "SQLAlchemy"},
    "'tfx-infeed[images]'": {"simplejpeg": "simplejpeg"},
    "'tfx-infeed[text]'": {"tensorflow_text": "tensorflow-text"},
    "torch": {"torch": "PyTorch"},
    "jax": {"jax": "JAX"},
    "'tfx-infeed[tfx]'": {
        **{"apache_beam": "Apache Beam", "celpy": "cel-python", "google": "Google Cloud's client"},
        **{"kfp": "Kubeflow Pipelines' SDK", "ml_metadata": "ML Metadata", "packaging": "packaging"},
        **{"sklearn": "scikit-learn", "tfx": "TFX"},
    },
    "'tfx-infeed[steps]'": {
        **{"matplotlib": "Matplotlib", "tfx_bsl": "tfx-bsl", "tensorflow_metadata": "tensorflow-metadata"},
        "tensorflow_data_validation": "TensorFlow Data Validation",
        "tensorflow_model_analysis": "TensorFlow Model Analysis",
        "tensorflow_transform": "TensorFlow Transform",
    },
}


class InfeedError(ValueError):
    """Invalid input, invalid options, or a missing capability of the machine. Never a bug of this package.

    Also a ValueError, which TFX raises for such errors and callers of TFX catch.
    The command line prints the error without a traceback and exits with code 2.

    Args:
      what: what is wrong, with the value.
      where: file, row, column, split or option. Empty if `what` makes it clear.
      do: how to fix it.
    """

    def __init__(self, what: str, *, where: str = "", do: str) -> None:
        self.what = what
        self.where = where
        self.do = do
        lines = [what, f"  where: {_indented(where)}" if where else "", f"  do:    {_indented(do)}"]
        super().__init__("\n".join(line for line in lines if line))

    def __reduce__(self) -> tuple[object, ...]:
        # Beam and multiprocessing pickle exceptions. Keyword-only arguments need this method.
        return (_rebuild, (self.what, self.where, self.do))

    @staticmethod
    def told_in(text: str) -> InfeedError | None:
        r"""Parse the last InfeedError in a text. Returns None if the text contains no complete one.

        The text is a log or the traceback of another process, which Beam and its runners may wrap: in the name of
        a step, a Java stack trace, or quotes with `\n` for line ends.
        """
        for quoted in (False, True, True):
            text = _ESCAPE.sub(_character, text) if quoted else text
            if found := list(_TOLD.finditer(text)):
                told = found[-1]
                where, do = ((told[name] or "").replace(f"\n{_INDENT}", "\n") for name in ("where", "do"))
                if quoted and told.end() == len(text):
                    do = _QUOTE_ENDS.sub("", do)
                return InfeedError(told["what"], where=where, do=_STEP.sub("", do))
        return None


class ReadFailedError(InfeedError):
    """A read failed for a reason outside the file, such as a lost connection, and may succeed later."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.what, self.where, self.do, ReadFailedError))


class OptionError(InfeedError):
    """Error about the option `option`, or about several if empty. `schema.read` adds the location in the file."""

    def __init__(self, what: str, *, where: str, do: str, option: str = "") -> None:
        super().__init__(what, where=where, do=do)
        self.option = option


@contextmanager
def value_errors(where: str, do: str, what: str = "") -> Iterator[None]:
    """Convert a ValueError of the body to InfeedError. `what` comes before its message."""
    try:
        yield
    except InfeedError:  # it has its own place and remedy
        raise
    except ValueError as error:
        raise InfeedError(f"{what}{error}", where=where, do=do) from error


def infeed_error(error: BaseException) -> InfeedError | None:
    """Return the InfeedError that `error` is, has as a cause, or contains as text. None if there is none."""
    links = [error]
    while (link := links[-1].__cause__ or links[-1].__context__) is not None:
        links.append(link)
    raised = (link for link in links if isinstance(link, InfeedError))
    return next(raised, None) or next(filter(None, (InfeedError.told_in(str(link)) for link in links)), None)


def required(module: str) -> Any:
    """Import a module. If it is missing, raise an InfeedError that names the package to install."""
    with naming_extras():
        return importlib.import_module(module)


@contextmanager
def naming_extras() -> Iterator[None]:
    """Convert a ModuleNotFoundError of the body to an error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        for package, names in _EXTRAS.items():
            if top in names:
                raise InfeedError(f"{names[top]} is not installed", do=f"pip install {package}") from error
        raise


def _character(found: re.Match[str]) -> str:
    escape = found[1]
    return _ESCAPED.get(escape) or (chr(int(escape[1:], 16)) if len(escape) > 1 else escape)


def _indented(text: str) -> str:
    return text.replace("\n", f"\n{_INDENT}")


def _rebuild(what: str, where: str, do: str, kind: type[InfeedError] = InfeedError) -> InfeedError:
    return kind(what, where=where, do=do)
