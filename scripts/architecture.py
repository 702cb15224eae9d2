"""Draw the picture of ARCHITECTURE.md: the imports between rooms.

    python scripts/architecture.py

A room is a package directly under `infeed.components` or `infeed.pipelines`, or one of the groups of `ROOMS`.
grimp finds the imports in the source, also within functions, without importing a module. Modules that the source names
in a string, to import them later, count as well. The picture is Mermaid text, which GitHub and most editors draw.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- made by scripts/architecture.py -->", "<!-- end -->"
# What is drawn as one room, and its name; any other package of `components` or `pipelines` is a room of its own name.
ROOMS = {
    "infeed.components": {"": "infeed.components"},  # the front door
    "infeed.pipelines": {
        "cli": "commands",
        **dict.fromkeys(("config", "deploy", "judging", "pipeline", "surveys"), "config and pipeline"),
        **dict.fromkeys(("local", "steps", "predict"), "local, steps, predict"),
    },
    "infeed.templates": dict.fromkeys(("", "image", "tabular", "text"), "templates"),
}
# The highest first. A floor imports only itself and the floors below.
FLOORS = {
    "the commands": ("commands",),
    "projects and clusters": (
        "cluster",
        "local, steps, predict",
        "console",
        "project",
        "config and pipeline",
        "templates",
    ),
    "the components": (
        *("infeed.components", "example_gen", "statistics", "transform", "trainer", "evaluation", "input_report"),
        "kubeflow",
    ),
    "the feed": ("load", "feed"),
    "what lies on disk, and how work is spread": ("engine", "dataset", "seams", "base"),
}

_DOTTED = re.compile(r"infeed(\.\w+)+\.?")  # the source may append the last part of the name at run time

Arrow = tuple[str, str]


def rooms_imported() -> Counter[Arrow]:
    """Count the imports between rooms: (importing room, imported room) -> number of imports."""
    graph = grimp.build_graph("infeed", exclude_type_checking_imports=True, cache_dir=None)
    imports = [
        (importer, imported)
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    ]
    arrows = Counter(
        (room(importer), room(imported)) for importer, imported in [*imports, *front_door(), *named(graph)]
    )
    return Counter({arrow: number for arrow, number in arrows.items() if arrow[0] != arrow[1] and all(arrow)})


def front_door() -> Iterator[tuple[str, str]]:
    """Return the imports of `infeed.components` itself. They are lazy, so the stub lists them."""
    stub = ast.parse((ROOT / "components" / "__init__.pyi").read_text())
    modules = {node.module for node in stub.body if isinstance(node, ast.ImportFrom)}
    return (("infeed.components", f"infeed.components.{module}") for module in sorted(filter(None, modules)))


def named(graph: grimp.ImportGraph) -> Iterator[tuple[str, str]]:
    """Yield imports by name, as the command line imports a command, and TFX imports an executor."""
    for importer in sorted(graph.modules):
        path = ROOT.joinpath(*importer.split("."))
        file = path.with_suffix(".py")  # takes precedence over a folder of that name, which may hold old bytecode
        source = file if file.exists() else path / "__init__.py"
        texts = {node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)}
        for text in sorted(text for text in texts if isinstance(text, str) and _DOTTED.fullmatch(text)):
            parts = text.strip(".").split(".")
            names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
            yield importer, next(name for name in names if name in graph.modules)


def room(module: str) -> str:
    """Return the room of a module: `feed` for `infeed.components.feed.plan`, or an empty text for `infeed` itself."""
    top, name = [*module.split(".")[1:], "", ""][:2]
    return ROOMS.get(f"infeed.{top}", {}).get(name, name)


def without_detours(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Return the arrows that do not follow from others: omit a -> c if there is a -> b, and b reaches c.

    If b also reaches a, both are part of a cycle, whose arrows all stay.
    """
    targets: dict[str, set[str]] = {}
    for importer, imported in arrows:
        targets.setdefault(importer, set()).add(imported)
    reached = {importer: reachable(importer, targets) for importer in targets}

    def follows(importer: str, imported: str) -> bool:
        others = targets[importer] - {imported}
        return any(imported in reached.get(by, ()) and importer not in reached.get(by, ()) for by in others)

    return [arrow for arrow in sorted(arrows) if not follows(*arrow)]


def reachable(start: str, targets: dict[str, set[str]]) -> set[str]:
    """Return every room that one or more arrows lead to from `start`."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = targets.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def mermaid(arrows: Counter[Arrow]) -> str:
    """Return the picture as Mermaid text: a box for each room, in one frame for each floor."""
    lines = ["```mermaid", "flowchart TB"]
    for number, (floor, rooms) in enumerate(FLOORS.items()):
        lines += [f'  subgraph floor{number}["{floor}"]', *(f'    {key(name)}["{name}"]' for name in rooms), "  end"]
    lines += [f"  {key(a)} -->|{arrows[a, b]}| {key(b)}" for a, b in without_detours(arrows)]
    return "\n".join([*lines, "```"])


def key(name: str) -> str:
    """Return Mermaid's id of a box, which has letters only."""
    return re.sub(r"\W+", "_", name)


def with_picture(page: str, arrows: Counter[Arrow]) -> str:
    """Return the page with a new picture."""
    block = f"{BEGIN}\n\n{mermaid(arrows)}\n\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_picture(PAGE.read_text(), rooms_imported()))
