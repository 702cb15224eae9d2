import sys

import pytest

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError

SOURCE = """
from os.path import join

def build(spec):
    return spec * 2

CONSTANT = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


def test_a_function_is_loaded_from_a_file(file):
    assert user_code.load(f"{file}:build", "model_fn")(21) == 42


@pytest.mark.parametrize("name", ["os.path:join", "os.path.join"])  # TFX takes the dotted path
def test_a_function_is_loaded_from_a_module(name):
    assert user_code.load(name, "model_fn")("a", "b") == "a/b"


def test_a_file_takes_nobodys_module_name(file):
    user_code.load(f"{file}:build", "model_fn")
    assert "model" not in sys.modules


def test_an_imported_name_counts_as_defined(file):
    assert user_code.resolve(f"{file}:join", "model_fn").function == "join"


@pytest.mark.parametrize(
    "definition",
    [
        "made = len",
        "made: object = len",
        "from math import sqrt as made",
        "from math import *",
        "with open(__file__):\n    made = len",
        "for made in [len]: ...",
        "class made: ...",
    ],
)
def test_whatever_a_module_makes_a_function_counts_as_defined(definition, tmp_path):
    (tmp_path / "model.py").write_text(definition)
    assert user_code.resolve(f"{tmp_path}/model.py:made", "model_fn").function == "made"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model", "'model' does not name a function(.|\n)*option model_fn(.|\n)*package.module:function"),
        ("model.py", "'model.py' does not name a function"),
        ("colorsys.nowhere", "colorsys defines no function 'nowhere'"),
        ("nowhere.py:build", "there is no file nowhere.py"),
        ("/nowhere/models:build", "there is no file /nowhere/models"),
        ("/bin/sh:build", "/bin/sh does not end in .py"),
        ("no_such_package.model:build", "there is no module 'no_such_package.model'"),
        ("colorsys:no_such_function", "colorsys defines no function 'no_such_function'(.|\n)*rgb_to_yiq"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told_before_anything_is_imported(text, message):
    with pytest.raises(InfeedError, match=message):
        user_code.resolve(text, "model_fn")


def test_a_missing_function_is_told_with_those_that_are_there_and_not_private(tmp_path):
    (tmp_path / "model.py").write_text("def _layer(): ...\ndef build(): ...\n")
    with pytest.raises(InfeedError, match="defines no function 'biuld'") as raised:
        user_code.resolve(f"{tmp_path}/model.py:biuld", "model_fn")
    assert raised.value.do == "add it, or use one of build"


def test_resolving_runs_nothing(tmp_path):
    (tmp_path / "model.py").write_text("raise RuntimeError\n\ndef build(spec): ...\n")
    assert user_code.resolve(f"{tmp_path}/model.py:build", "model_fn").is_file


@pytest.mark.parametrize(
    ("source", "what", "where"),
    [
        (
            "def build(spec):\n    x = {}\n    return x['height']\n",
            "KeyError: 'height'",
            "line 3, in build: \"return x['",
        ),
        ("def build(spec):\n    raise ValueError\n", "ValueError", "line 2, in build: 'raise ValueError'"),
        ("import json\ndef build(spec):\n    return json.loads('{')\n", "JSONDecodeError: ", "line 3, in build"),
        ("import numpyy\ndef build(spec): ...\n", "ModuleNotFoundError: No module named 'numpyy'", "line 1"),
        ("def build(spec)\n    return 1\n", "SyntaxError: ", "line 1: 'def build(spec)'"),
        ("def build(spec):\n\treturn 1\n        return 2\n", "TabError: ", "line 3"),
    ],
)
def test_an_error_in_the_users_file_shows_its_file_line_and_words(file, source, what, where):
    file.write_text(source)
    with pytest.raises(InfeedError) as error:
        user_code.load(f"{file}:build", "model_fn")(1)
    assert error.value.what.startswith(what)
    assert error.value.where.startswith(f"{file}, {where}")
    assert error.value.where.endswith(", option model_fn")


def test_an_error_in_a_library_alone_stays_what_it_is():
    with pytest.raises(TypeError):
        user_code.load("os.path:join", "model_fn")(3)


def test_what_is_told_already_is_not_told_again(file):
    file.write_text(
        "from infeed.components.base.errors import InfeedError\n"
        "def build(spec):\n    raise InfeedError('no', do='so')\n"
    )
    with pytest.raises(InfeedError, match=r"^no\n"):
        user_code.load(f"{file}:build", "model_fn")(1)


def test_the_digest_follows_the_source(file):
    before = user_code.digest(f"{file}:build", "model_fn")
    assert before == user_code.digest(f"{file}:build", "model_fn")
    file.write_text(SOURCE + "# edited\n")
    assert user_code.digest(f"{file}:build", "model_fn") != before


@pytest.mark.parametrize("ending", ["sys.exit(0)", "sys.exit(3)", "raise SystemExit", "raise KeyboardInterrupt"])
@pytest.mark.parametrize("where", ["import", "call"])
def test_code_that_ends_the_program_is_an_error_with_its_line(tmp_path, ending, where):
    body = (
        f"import sys\ndef build():\n    {ending}\n" if where == "call" else f"import sys\n{ending}\ndef build(): pass\n"
    )
    (tmp_path / "model.py").write_text(body)
    with pytest.raises(InfeedError, match=r"SystemExit|KeyboardInterrupt") as raised:
        user_code.load(f"{tmp_path / 'model.py'}:build", "model_fn")()
    assert f"line {3 if where == 'call' else 2}" in raised.value.where


def test_ctrl_c_in_a_users_code_stays_one(tmp_path):
    (tmp_path / "model.py").write_text(
        "import os, signal, time\ndef build():\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\n"
    )
    with pytest.raises(KeyboardInterrupt):
        user_code.load(f"{tmp_path / 'model.py'}:build", "model_fn")()
