"""A plugin of pytest that runs the tests of tft and TFX, as they are installed, through the executors of this package.

`make test-peers` loads it. A test has to pass, and to call one of our executors, unless `not_ours.py` lists it. A test
in its `FAILS` has to fail, so that the list shrinks as we mend.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pytest
from absl import flags
from peers import calls
from peers.not_ours import ELSEWHERE, FAILS


def pytest_configure() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    flags.FLAGS(sys.argv[:1])  # tests of TensorFlow read a temporary folder there
    from peers import tft_transform

    tft_transform.replace()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    others = [item for item in items if _reason(item, ELSEWHERE) or item.name == "test_session"]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
    from peers import tfx_executors

    for module in {item.module for item in items}:
        tfx_executors.replace_in(module)
    for item in items:
        if reason := _reason(item, FAILS):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    calls.count = 0
    yield
    assert calls.count, "the test calls none of our executors: list it in ELSEWHERE, or replace what it calls"


def _reason(item: pytest.Item, listed: dict[str, dict[str, str]]) -> str | None:
    module: Any = getattr(item, "module", None)
    patterns = listed.get(module.__name__ if module else "", {})
    return next((reason for pattern, reason in patterns.items() if fnmatch(item.name, pattern)), None)
