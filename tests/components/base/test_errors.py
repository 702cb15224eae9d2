from __future__ import annotations

import json
import pickle
import sys
import traceback

import pytest

from infeed.components.base.errors import InfeedError, infeed_error, naming_extras, required, value_errors

NAME = "infeed.components.base.errors.InfeedError"
JAVA = "\n\tat java.base/java.util.concurrent.FutureTask.report(FutureTask.java:122)\nCaused by: java.io.IOException: x"
ERRORS = [
    InfeedError("'a.png' is not an image", where="class cat", do="remove the file"),
    InfeedError("no rows in the input", do="check the path, such as open('data/*.csv')"),
    InfeedError("two types:\n\n  int in a.csv\n  text in 'b.csv' [1]", where="a.csv\nb.csv", do="say one:\n  --set x"),
    InfeedError('größer als 7 \N{SNOWMAN} \\d "x"', where="C:\\data\\new.csv", do="write 'x' (or \"y\")"),
    InfeedError(f"while reading:\n{InfeedError('cut short', where='line 3', do='mend it')}", where="a.csv", do="look"),
]


def raised(error: InfeedError) -> str:
    """The traceback, with a line of code in it that names the class."""
    try:
        raise error
    except InfeedError:
        return traceback.format_exc()


def reraised(error: InfeedError) -> str:
    """The traceback that Beam's workers send, which tells it twice: as it was, and with the name of the step."""
    try:
        try:
            raise error
        except InfeedError as first:
            raise RuntimeError(f"{NAME}: {first} [while running 'Read all/Parse(x)-ptransform-12']")  # noqa: B904
    except RuntimeError:
        return traceback.format_exc()


TEXTS = {
    "in words": lambda error: f"{NAME}: {error}",
    "a traceback": raised,
    "twice, with Beam's step": reraised,
    "of a portable runner": lambda error: f"Pipeline job-1 failed in state FAILED: {reraised(error)}",
    "with Java's stack": lambda error: f"java.lang.RuntimeException: Error received from SDK: {reraised(error)}{JAVA}",
    "quoted": lambda error: f"Job failed: {RuntimeError(f'{NAME}: {error}')!r}",
    "a quoted traceback": lambda error: str([RuntimeError(reraised(error))]),
    "quoted twice": lambda error: repr(RuntimeError(repr(raised(error)))),
    "in JSON": lambda error: json.dumps({"message": reraised(error), "code": 3}),
}


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
def test_an_error_that_arrives_as_text_is_whole(error: InfeedError, form: str) -> None:
    found = InfeedError.told_in(TEXTS[form](error))
    assert found is not None
    assert (found.what, found.where, found.do) == (error.what, error.where, error.do)


def test_of_several_the_last_is_told() -> None:
    text = "\n".join(map(raised, ERRORS))
    assert str(InfeedError.told_in(text)) == str(ERRORS[-1])


@pytest.mark.parametrize("text", ["", "ValueError: no\n  do:    x", "InfeedError: cut sh", r"InfeedError: cut \n  do:"])
def test_a_text_that_tells_none_whole_tells_none(text: str) -> None:
    assert InfeedError.told_in(text) is None


def test_an_error_that_was_raised_here_goes_before_one_that_is_told_of() -> None:
    error = RuntimeError(raised(ERRORS[0]))
    error.__cause__ = ERRORS[1]
    assert infeed_error(error) is ERRORS[1]
    error.__cause__ = None
    assert str(infeed_error(error)) == str(ERRORS[0])
    assert infeed_error(RuntimeError("out of patience")) is None


def test_further_lines_stand_below_the_first() -> None:
    lines = str(InfeedError("no", where="a\nb", do="this\nor that")).split("\n")
    assert lines == ["no", "  where: a", "         b", "  do:    this", "         or that"]


def test_an_error_is_pickled_whole() -> None:
    for error in ERRORS:
        copy = pickle.loads(pickle.dumps(error))
        assert (copy.what, copy.where, copy.do, str(copy)) == (error.what, error.where, error.do, str(error))


def test_what_is_installed_is_given():
    assert required("json") is json


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("tensorflow.keras", r"TensorFlow is not installed\n  do:    pip install 'tfx-infeed\[tf\]'"),
        ("tfx.v1", r"TFX is not installed\n  do:    pip install 'tfx-infeed\[tfx\]'"),
        ("torch", r"PyTorch is not installed\n  do:    pip install torch"),
    ],
)
def test_what_is_not_installed_is_named(monkeypatch, module, said):
    monkeypatch.setitem(sys.modules, module, None)  # also where a test before has imported it
    with pytest.raises(InfeedError, match=said):
        required(module)


def test_a_module_that_no_extra_brings_is_the_users_own_matter():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), naming_extras():
        import no_such_module  # noqa: F401


def test_callers_of_tfx_catch_an_error_as_a_value_error() -> None:
    with pytest.raises(ValueError, match="is not an image"):
        raise ERRORS[0]
    assert isinstance(pickle.loads(pickle.dumps(ERRORS[0])), ValueError)


def test_a_value_error_gets_a_place_and_a_remedy_and_an_error_with_its_own_keeps_them() -> None:
    with pytest.raises(InfeedError) as raised, value_errors("a.json", "write it again", "cannot read it: "):
        raise ValueError("not JSON")
    assert (raised.value.what, raised.value.where) == ("cannot read it: not JSON", "a.json")
    with pytest.raises(InfeedError) as raised, value_errors("a.json", "write it again"):
        raise ERRORS[0]
    assert raised.value is ERRORS[0]
