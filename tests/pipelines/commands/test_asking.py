"""A command that is given a table without a label asks for it on a terminal, and names the likely columns elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.commands import asking
from infeed.pipelines.commands.asking import decided
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.labels import Candidate


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "t.csv").write_text("age,bought\n" + "30,yes\n41,no\n52,no\n" * 10)
    monkeypatch.setattr(sys, "argv", ["infeed", "run", "tabular"])
    return {"data": str(tmp_path / "t.csv"), "root": str(tmp_path / "run")}


def asked(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[Candidate]:
    """Somebody is at the terminal; the choices that they see."""
    seen: list[Candidate] = []
    monkeypatch.setattr(asking, "can_ask", lambda: True)
    monkeypatch.setattr(asking, "choose", lambda candidates: seen.extend(candidates) or answer)
    return seen


@pytest.mark.parametrize("template", ["tabular", "text"])
def test_elsewhere_the_error_has_a_command_line_to_paste(template: str, given: dict[str, str]) -> None:
    with pytest.raises(InfeedError, match="no label") as raised:
        decided(read_project(template), given)
    assert raised.value.do.endswith("run tabular --label bought")
    assert "diagnosis" not in str(raised.value)


def test_on_a_terminal_the_answer_is_the_label(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(monkeypatch, "bought")
    assert decided(read_project("tabular"), given).train.label == "bought"
    assert [choice.name for choice in seen] == ["bought", "age"]
    assert (seen[0].type, seen[0].distinct, seen[0].examples) == ("bytes", 2, "'no', 'yes'")
    assert sys.argv[-2:] == ["--label", "bought"]


def test_nobody_is_asked_for_the_output_of_a_program(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(monkeypatch, "bought")
    with pytest.raises(InfeedError, match="no label"):
        decided(read_project("tabular"), given, may_ask=False)
    assert not seen


def test_a_label_with_a_typing_error_is_an_error_and_no_question(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = asked(monkeypatch, "bought")
    with pytest.raises(InfeedError, match="did you mean 'bought'"):
        decided(read_project("tabular"), {**given, "label": "bougt"})
    assert not seen


def test_a_config_without_a_label_is_asked_for_one_too(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text("def build_model(spec):\n    raise NotImplementedError\n")
    features = "[{kind: z_score, column: age}, {kind: label, column: bought}]"
    (tmp_path / "config.yaml").write_text(
        f"source: csv\ndata: {given['data']}\nmodel: model.py:build_model\nfeatures: {features}\n"
    )
    asked(monkeypatch, "bought")
    assert decided(read_project(str(tmp_path / "config.yaml")), {}).train.label == "bought"


def test_the_bundled_table_of_a_template_has_the_label_of_the_template(tmp_path: Path) -> None:
    assert decided(read_project("tabular"), {"root": str(tmp_path)}).train.label == "diagnosis"
