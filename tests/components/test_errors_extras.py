"""What is not installed is named with what brings it."""

from __future__ import annotations

import json
import sys

import pytest

from infeed.components.errors import InfeedError, naming_extras, required


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
