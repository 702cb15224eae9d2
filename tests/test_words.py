"""The words of the product are as CONTRIBUTING.md says: those of errors, sections of docstrings, names of classes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("components", "pipelines", "templates")
# Words that begin with a capital letter wherever they stand.
NAMES = {"Avro", "BigQuery", "Google", "JSON", "Kubeflow", "NumPy", "OUTPUT", "Transform", "Vertex", "YAML"}
CHECKS = {"require": 3, "refused": 2}  # of `checks`: which argument is `do`

# Phrases that read as riddles. The rooms in LATER still have some.
RIDDLES = re.compile(
    r"\b(?:(?:is|are|was|be) told|nobody knows|stands? there|no place in|has been said|takes? no notice)\b"
    r"|(?:\"{3}|# |\. )(?:The same (?:for|of|as|again)|All of (?:it|them)|Most of (?:it|them)|Such a) ",
)
LATER = ("components/evaluation/measuring.py",)
MOST_WORDS = 30  # of a sentence of a page
LONG_SENTENCES = {  # pages that still have some
    "CHANGELOG.md",
}

Text = tuple[int, str, str]  # line, argument, what it says; `{}` for what is only known when it is raised


@cache
def nodes(floor: str) -> list[tuple[Path, ast.AST]]:
    """Each call and each class of a floor, with the file that it stands in."""
    files = sorted((ROOT / floor).rglob("*.py"))
    found = ((path.relative_to(ROOT), node) for path in files for node in ast.walk(ast.parse(path.read_text())))
    return [(path, node) for path, node in found if isinstance(node, ast.Assign | ast.Call | ast.ClassDef)]


def spoken(call: ast.AST) -> Iterator[Text]:
    """The literal texts of the errors that a call makes, or that are prepared for one as `what` and `do`."""
    if isinstance(call, ast.Assign) and (name := ast.unparse(call.targets[0])) in ("what", "do"):
        yield from ((call.lineno, name, text) for text in literals(call.value))
    if not isinstance(call, ast.Call):
        return
    function = ast.unparse(call.func)
    if (place := CHECKS.get(function)) is not None and len(call.args) > place:
        yield from ((call.lineno, "do", text) for text in literals(call.args[place]))
    if function.endswith("Error"):
        arguments = {word.arg: word.value for word in call.keywords}
        if "do" in arguments:
            arguments["what"] = call.args[0] if call.args else arguments["what"]
            for name in ("what", "where", "do"):
                yield from ((call.lineno, name, text) for text in literals(arguments.get(name)))


def literals(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from (*literals(node.body), *literals(node.orelse))


def breaks_the_rule(name: str, text: str) -> bool:
    word = re.match(r"[A-Z]\w*", text)
    starts_high = name != "where" and word is not None and word.group() not in NAMES
    shows_badly = name == "what" and re.search(r"^(\w|\{\})+=\{\}", text) is not None  # `x=5`
    return starts_high or shows_badly or (text.endswith(".") and not text.endswith("..."))


@pytest.mark.parametrize("floor", FLOORS)
def test_errors_speak_in_one_form(floor: str) -> None:
    looked_at = [(path, node) for path, node in nodes(floor) if path.name != "doctor.py"]  # its findings are sentences
    found = [(path, *text) for path, node in looked_at for text in spoken(node)]
    wrong = [f"{path}:{line}: {name}={text!r}" for path, line, name, text in found if breaks_the_rule(name, text)]
    assert wrong == []
    assert found or floor == "templates"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("'x is 5', where='FeedOptions', do='use 7'", []),
        ("f'{x} is 5', do='use 7, 8, ...'", []),
        ("'Kubeflow has no x', do='use Vertex AI'", []),
        ("'X is 5.', do='Use 7' if x else 'use 8.'", ["X is 5.", "Use 7", "use 8."]),
        ("'x is 5', where='a file.', do='use 7'", ["a file."]),
        ("f'x={x}', do=f'use x={y}'", ["x={}"]),
    ],
)
def test_what_breaks_the_rule_is_found(arguments: str, wrong: list[str]) -> None:
    assert found_in(f"raise InfeedError({arguments})") == wrong


def test_what_a_check_says_is_looked_at_too() -> None:
    assert found_in("require(x, self, 'x', 'Use 7.'); refused(self, 'x', 'use 7.')") == ["Use 7.", "use 7."]


def test_so_is_what_an_error_is_given_by_name() -> None:
    assert found_in("do = 'Use 7.'; what = 'x is 8'; raise InfeedError(what, do=do)") == ["Use 7."]


def found_in(source: str) -> list[str]:
    return [
        text for node in ast.walk(ast.parse(source)) for _, name, text in spoken(node) if breaks_the_rule(name, text)
    ]


@pytest.mark.parametrize("floor", FLOORS)
def test_dataclasses_list_attributes_not_arguments(floor: str) -> None:
    wrong = [
        f"{path}: {node.name}"
        for path, node in nodes(floor)
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        and re.search("^Args:", ast.get_docstring(node) or "", re.MULTILINE)
    ]
    assert wrong == []


@pytest.mark.parametrize("floor", ["components", "pipelines"])
def test_no_class_name_occurs_twice_on_a_floor(floor: str) -> None:
    names = Counter(node.name for _, node in nodes(floor) if isinstance(node, ast.ClassDef))
    assert [name for name, times in names.items() if times > 1] == []


def test_no_phrase_is_a_riddle() -> None:
    files = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")] + pages()
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    found = {name: RIDDLES.findall(text) for name, text in texts.items() if not name.startswith(LATER)}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


@pytest.mark.parametrize("text", ['"""The same for JSON."""', "# Most of it is read.", "what is told, nobody knows"])
def test_a_riddle_is_found(text: str) -> None:
    assert RIDDLES.search(text)


def test_sentences_of_pages_are_short() -> None:
    found = {str(path.relative_to(ROOT)): list(long_sentences(path.read_text())) for path in pages()}
    assert {page: long for page, long in found.items() if long and page not in LONG_SENTENCES} == {}


def test_a_long_sentence_is_found() -> None:
    words = " ".join(["word"] * MOST_WORDS)
    assert list(long_sentences(f"A {words}. Short.\n\n| {words} {words} |\n")) == [f"A {words}."]


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def long_sentences(page: str) -> Iterator[str]:
    """Yield sentences of more than MOST_WORDS words. Code, tables and headings have none."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "x", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) |#|\|)", text):
        if not paragraph.strip() or paragraph.strip().startswith(("|", "#")) or paragraph.startswith("    "):
            continue
        sentences = re.split(r"(?<=[.!?:])\s+(?=[A-Zx*(\"])", " ".join(paragraph.split()))
        yield from (one for one in sentences if len(one.split()) > MOST_WORDS)
