"""Every name that a pipeline's author imports is there, on both stacks."""

from __future__ import annotations

import pytest

from infeed.names import NAMES, find

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_imported(name: str) -> None:
    assert find(name) is not None
