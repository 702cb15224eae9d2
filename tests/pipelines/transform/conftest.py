"""A project of a table of 30 rows, and its features."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFIG = """
source: csv
data: {folder}/rides.csv
label: tipped
features:
  - {{kind: z_score, column: fare}}
  - {{kind: bucketize, column: miles, buckets: 3, output: distance}}
  - {{kind: vocabulary, column: company, size: 2}}
  - {{kind: label, column: tipped}}
model: {folder}/model.py:build
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The path of its config file. In each tenth row the fare is missing."""
    rows = ["fare,miles,company,tipped"]
    companies = (*["Blue"] * 6, *["Red"] * 3, "Green")
    for number in range(30):
        fare = "" if number % 10 == 4 else f"{number}.5"
        rows.append(f"{fare},{number % 7},{companies[number % 10]},{'yes' if number % 3 else 'no'}")
    (tmp_path / "rides.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "model.py").write_text("def build(shapes, options):\n    raise NotImplementedError\n")
    (tmp_path / "config.yaml").write_text(CONFIG.format(folder=tmp_path))
    return tmp_path / "config.yaml"
