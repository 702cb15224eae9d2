"""docs/config.md lists every setting, as the dataclasses define them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "config_page.py"


def test_the_page_is_what_the_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("config_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = script.PAGE.read_text()
    assert script.with_tables(page) == page, "run: python scripts/config_page.py"
    assert "| `batch_size` | `128` |" in page
