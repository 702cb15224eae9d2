import sys

import pytest

from infeed.components import user_code
from infeed.components.errors import InfeedError

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


def test_a_function_is_loaded_from_a_module():
    assert user_code.load("os.path:join", "model_fn")("a", "b") == "a/b"


def test_a_file_takes_nobodys_module_name(file):
    user_code.load(f"{file}:build", "model_fn")
    assert "model" not in sys.modules


def test_an_imported_name_counts_as_defined(file):
    assert user_code.resolve(f"{file}:join", "model_fn").function == "join"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model", "'model' does not name a function(.|\n)*option model_fn(.|\n)*package.module:function"),
        ("nowhere.py:build", "there is no file nowhere.py"),
        ("no_such_package.model:build", "there is no module 'no_such_package.model'"),
        ("colorsys:no_such_function", "colorsys defines no function 'no_such_function'(.|\n)*rgb_to_yiq"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told_before_anything_is_imported(text, message):
    with pytest.raises(InfeedError, match=message):
        user_code.resolve(text, "model_fn")


def test_a_missing_function_is_told_with_those_that_are_there(file):
    with pytest.raises(InfeedError, match=r"defines no function 'biuld'(.|\n)*It defines: build"):
        user_code.resolve(f"{file}:biuld", "model_fn")


def test_resolving_runs_nothing(tmp_path):
    (tmp_path / "model.py").write_text("raise RuntimeError\n\ndef build(spec): ...\n")
    assert user_code.resolve(f"{tmp_path}/model.py:build", "model_fn").is_file


def test_the_digest_follows_the_source(file):
    before = user_code.digest(f"{file}:build", "model_fn")
    assert before == user_code.digest(f"{file}:build", "model_fn")
    file.write_text(SOURCE + "# edited\n")
    assert user_code.digest(f"{file}:build", "model_fn") != before
