"""SIGTERM ends the body in order, and the handler that was there comes back."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from infeed.components.base.sigterm import stopped_by_sigterm


def test_the_body_ends_with_the_code_of_the_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as raised, stopped_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_works_without_signals() -> None:
    def work() -> int:
        with stopped_by_sigterm():
            return 1

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == 1
