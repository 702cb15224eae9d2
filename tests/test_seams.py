"""Only `components/seams` touches names of other packages that begin with an underscore."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SEAMS = ROOT / "components" / "seams"
FOLDERS = ("benchmarks", "components", "infeed", "pipelines", "scripts", "templates")
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if SEAMS not in path.parents and not any(parent.is_symlink() for parent in path.parents)
)
DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace"}  # of named tuples, and os._exit
BY_NAME = {"delattr", "getattr", "hasattr", "setattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def touched(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """(line, owner, name) of each private name that is read or set on something."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name):
                yield node.lineno, ast.unparse(owner), name
            case ast.Call(func=ast.Name(id=function), args=[owner, ast.Constant(value=str(name)), *_]):
                if function in BY_NAME:
                    yield node.lineno, ast.unparse(owner), name
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] not in ("infeed", *sys.stdlib_module_names):
                    yield from ((node.lineno, module, part) for part in module.split("."))
                    yield from ((node.lineno, module, one.name) for one in names)
            case ast.Import(names=names):
                yield from ((node.lineno, one.name, part) for one in names for part in one.name.split("."))


def defined(tree: ast.AST) -> set[str]:
    """Names that the file gives to its own functions, classes, fields, variables and attributes."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def of_others(tree: ast.AST, known: set[str]) -> list[str]:
    """What a file touches of other packages. `known` are names that other packages are known to have."""
    own = defined(tree)
    found = ((line, owner, name) for line, owner, name in touched(tree) if is_private(name))
    return [
        f"line {line}: {owner}.{name}"
        for line, owner, name in found
        if name not in own or owner == "super()" or (name in known and owner not in ("self", "cls"))
    ]


@pytest.fixture(scope="module")
def known() -> set[str]:
    trees = (ast.parse(path.read_text()) for path in SEAMS.glob("*.py"))
    return {name for tree in trees for _, _, name in touched(tree) if is_private(name)}


def test_no_file_touches_a_private_name_of_another_package(known: set[str]) -> None:
    found = {path.relative_to(ROOT).as_posix(): of_others(ast.parse(path.read_text()), known) for path in FILES}
    assert len(found) > 300
    assert {path: touches for path, touches in found.items() if touches} == {}


@pytest.mark.parametrize(
    "source",
    [
        "model._symbolic_build()",
        "getattr(combiner, '_key', None)",
        "from keras.src import _private",
        "from keras._tf_keras import layers",
        "import apache_beam._hidden",
        "class Ours:\n  def _load(self): return super()._load()",
        "class Ours:\n  def __init__(self): self._post_build = 1\nmodel._post_build()",
        "class Ours(Theirs):\n  def f(self): return self._theirs",
        "model._maybe_symbolic_build = None",
    ],
)
def test_the_rule_finds(source: str, known: set[str]) -> None:
    assert of_others(ast.parse(source), known)


@pytest.mark.parametrize(
    "source",
    [
        "class Ours:\n  def _f(self): return self._f()\n  def g(self, other): return other._f()",
        "pair._replace(a=1)",
        "os._exit(1)",
        "getattr(loss, '__name__', '')",
        "from infeed.components.dataset import _ours",
    ],
)
def test_the_rule_passes(source: str, known: set[str]) -> None:
    assert of_others(ast.parse(source), known) == []
