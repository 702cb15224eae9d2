from __future__ import annotations

import importlib
import traceback
from types import ModuleType

import pytest

from infeed.components.errors import InfeedError

pytestmark = pytest.mark.tfx

BAD_IMAGE = InfeedError("'a.png' is not an image", where="class cat", do="remove it or name it in a reject file")
QUALIFIED = f"{InfeedError.__module__}.InfeedError: {BAD_IMAGE}"


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    """Not imported while tests are collected: it loads TFX."""
    return importlib.import_module("infeed.pipelines.local.runner")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BAD_IMAGE, str(BAD_IMAGE)),
        (ValueError("bad\nvalue"), "ValueError: bad\nvalue"),
        (KeyError("fare"), "KeyError: 'fare'"),  # str() alone would read 'fare'
        (ValueError(), "ValueError"),
        # Beam names the step, in an exception of the same type where it can make one ...
        (ValueError("bad value [while running 'Read/Parse']"), "ValueError: bad value"),
        # ... and in a RuntimeError where it cannot, or where the exception comes from another process.
        (RuntimeError("OSError: [Errno 2] No such: 'x' [while running 'R']"), "OSError: [Errno 2] No such: 'x'"),
        (RuntimeError(f"{QUALIFIED} [while running 'R']"), str(BAD_IMAGE)),
        (RuntimeError("apache_beam.io.BadFileError: x [while running 'R']"), "BadFileError: x"),
        (RuntimeError("out of patience"), "RuntimeError: out of patience"),  # nothing is wrapped here
    ],
)
def test_wrappings_are_taken_off(error: Exception, words: str, runner: ModuleType) -> None:
    assert runner.root_cause(error) == words


def test_an_infeed_error_is_found_behind_what_was_raised_from_it(runner: ModuleType) -> None:
    error = RuntimeError("analysis failed")
    error.__cause__ = BAD_IMAGE
    assert runner.root_cause(error) == str(BAD_IMAGE)


def _nested_traceback(error: Exception) -> str:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise error  # noqa: B904 - the second traceback of the text
    except Exception:
        return traceback.format_exc()


def test_a_traceback_that_is_only_text_ends_in_the_error(runner: ModuleType) -> None:
    assert runner.last_error(_nested_traceback(ValueError("bad value"))) == "ValueError: bad value"
    assert runner.last_error(_nested_traceback(BAD_IMAGE)) == str(BAD_IMAGE)


def test_a_traceback_inside_a_message_ends_in_the_error(runner: ModuleType) -> None:
    assert runner.root_cause(RuntimeError(_nested_traceback(BAD_IMAGE))) == str(BAD_IMAGE)


def test_a_message_without_a_traceback_stays_as_it_is(runner: ModuleType) -> None:
    assert runner.last_error("inputs could not be resolved") == "inputs could not be resolved"
