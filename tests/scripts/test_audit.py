"""scripts/audit.sh without a database of vulnerabilities: it says that nothing was compared."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_an_audit_without_a_database_is_skipped_and_says_so() -> None:
    if not (ROOT / ".venv" / "bin" / "pip-audit").exists():
        pytest.skip("there is no .venv")
    nowhere = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run([ROOT / "scripts" / "audit.sh"], env=nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 77
    assert "SKIPPED" in done.stderr
