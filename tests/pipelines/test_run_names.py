"""A table whose columns have the most hostile names: trained on, exported, evaluated and asked, by the command."""

from __future__ import annotations

import csv
import json
import keyword
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tfx

INFEED = Path(sys.executable).with_name("infeed")
RESERVED = "self examples inputs label weight training name dtype shape key index raw id prediction probability path"
LAYERS = "dense mean dropout concatenate input_1 keras_tensor ops transform_fn count batch Split-train manifest.json"
ALIKE = "A a a_2 A_2 f_a f_A f_self f_class \u00e9 e\u0301 K \u212a k fi \ufb01 größe GRÖSSE \u0130 \u0131 1 1_ _1"
SIGNS = "a/b a:b a.b a,b a=b a'b a\"b a\\b a#b a%b $x {x} [x] * .. . - --help ~ @x & | <b> </script> %s \u200bx con nul"
WORDS = "😀 名前 اسم שם имя ὄνομα नाम ชื่อ nan NaN null true"
SPACED = ["a b", "a\tb", "a\nb", "x" * 300, "x" * 299 + "y"]


def hostile_names(count: int) -> list[str]:
    """All of the above, and random ones of all letters of Unicode."""
    names = dict.fromkeys([*keyword.kwlist, *" ".join([RESERVED, LAYERS, ALIKE, SIGNS, WORDS]).split(), *SPACED])
    shuffler = random.Random(7)
    while len(names) < count:
        letters = (chr(shuffler.randrange(0x21, 0x2FA1E)) for _ in range(shuffler.randrange(1, 6)))
        names["".join(letter for letter in letters if letter.isprintable() and letter != "\ufeff") or "empty"] = None
    return [*names][:count]


def write_table(path: Path, names: Sequence[str], rows: int) -> None:
    """Every other column is text; the label `outcome` can be learned from all of them."""
    values = random.Random(1)

    def cell(place: int, good: bool) -> str:
        if place % 2:
            return values.choice(["red", "green", "blue"] if good else ["red", "green"])
        return f"{values.random() + 0.3 * good:.3f}"

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "outcome"])
        for row in range(rows):
            writer.writerow([*(cell(place, row % 2 == 0) for place in range(len(names))), "yes" if row % 2 else "no"])


def infeed(warm: Mapping[str, str], *words: Any) -> str:
    done = subprocess.run(
        [INFEED, *map(str, words)], env={**os.environ, **warm}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_columns_of_any_name_are_trained_on_exported_evaluated_and_asked(
    tmp_path: Path, warm: Mapping[str, str]
) -> None:
    names = hostile_names(140)
    write_table(tmp_path / "table.csv", names, 240)
    write_table(tmp_path / "new.csv", names, 3)
    options = ["--label", "outcome", "--root", tmp_path / "root", "--epochs", 1, "--json"]
    outcome = json.loads(infeed(warm, "run", "tabular", "--data", tmp_path / "table.csv", *options))["outcome"]
    assert outcome["metrics"]["accuracy"] > 0
    lines = infeed(warm, "predict", outcome["model"], tmp_path / "new.csv", "--json").splitlines()
    assert [json.loads(line)["value"] in ("yes", "no") for line in lines] == [True] * 3
