"""Check the spelling of comments, docstrings and pages with codespell.

    python scripts/spelling.py

The script does not check code, because names may follow the spelling of other packages.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def prose(code: str) -> str:
    """Return the comments and docstrings of Python code, at their line numbers. All other lines are empty."""
    lines = [""] * (code.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _keep_docstring(node, lines)
    return "\n".join(lines)


def _keep_docstring(node: ast.AST, lines: list[str]) -> None:
    match getattr(node, "body", None):
        case [ast.Expr(value=ast.Constant(value=str(text)) as constant), *_]:
            for number, line in enumerate(text.split("\n"), constant.lineno - 1):
                lines[number] = line


def write_prose(folder: Path) -> None:
    """Write the prose of each file of the tree to the same path in `folder`."""
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        text = (ROOT / name).read_text()
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(prose(text) if name.endswith(".py") else text)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_prose(Path(folder))
        command = [sys.executable, "-m", "codespell_lib", "--toml", str(ROOT / "pyproject.toml"), "."]
        return subprocess.run(command, cwd=folder).returncode


if __name__ == "__main__":
    raise SystemExit(main())
