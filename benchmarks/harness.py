"""Common parts of all benchmarks: alternating turns, the result type, and the table.

A benchmark yields results. It prints them as a table, or with `--json` as one JSON object per line, as they come.
`benchmarks/run.py` collects the lines of all benchmarks.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar

import click
from clock import Cost, median
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
_WIDE = 300  # characters of a line if the output is not a terminal
_NONE = "-"
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
_HEADINGS = ("benchmark", "case", "ours", "the other side", "CPU ratio", "wall ratio", "turns")
_CAPTION = "Ratio: seconds of the other side over ours. Medians of so many turns, which the sides take alternately."

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line instead of a table.")


@dataclass(frozen=True)
class Side:
    """A contender, and the cost of a unit of its work. Values are None if they were not measured."""

    name: str
    cpu: float | None = None  # CPU seconds, including child processes
    wall: float | None = None  # wall seconds
    memory: int | None = None  # peak in bytes
    also: Mapping[str, float | str] = field(default_factory=dict)  # other measurements by name
    absent: str = ""  # why the contender did not run; empty if it ran

    @classmethod
    def of(cls, name: str, costs: Iterable[Cost], **more: Any) -> Side:
        """Return a side with the medians of its turns."""
        middle = median(costs)
        return cls(name, middle.cpu, middle.wall, **more)

    def __str__(self) -> str:
        if self.absent:
            return f"{self.name}: {self.absent}"
        cpu = [f"{duration(self.cpu)} CPU"] if self.cpu is not None else []
        wall = [duration(self.wall)] if self.wall is not None else []
        memory = [f"{self.memory / 1e6:,.0f} MB"] if self.memory is not None else []
        return f"{self.name}: {', '.join(cpu + wall + memory)}"


@dataclass(frozen=True)
class Result:
    """Comparison of two sides: a row of the table."""

    benchmark: str
    case: str  # sizes, and the unit of the seconds: "raw, 2,000 images, an image"
    ours: Side
    other: Side | None  # None if there is no other side
    turns: int  # turns of each side; the values are medians
    FIRST: ClassVar[str] = '{"benchmark": '  # prefix of a JSON line

    @property
    def cpu_ratio(self) -> float | None:
        """Ratio of the other side's CPU time to ours."""
        return _ratio(self.other.cpu if self.other else None, self.ours.cpu)

    @property
    def wall_ratio(self) -> float | None:
        return _ratio(self.other.wall if self.other else None, self.ours.wall)

    def to_json(self) -> str:
        """Return one line of JSON, including the ratios for other programs."""
        return json.dumps({**asdict(self), "cpu_ratio": self.cpu_ratio, "wall_ratio": self.wall_ratio})

    @classmethod
    def from_json(cls, line: str) -> Result:
        fields = json.loads(line)
        ours, other = Side(**fields["ours"]), Side(**fields["other"]) if fields["other"] else None
        return cls(fields["benchmark"], fields["case"], ours, other, fields["turns"])


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs is not None and ours else None


def missing(module: str) -> str:
    """Return why a contender that needs a module cannot run. Empty if it can."""
    return "" if importlib.util.find_spec(module) else f"{module} is not installed"


def interleave(contenders: Mapping[str, Callable[[], T]], turns: int) -> dict[str, list[T]]:
    """Return the results of each contender's turns. Turns alternate, so that other load affects all contenders."""
    took: dict[str, list[T]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, run in contenders.items():
            took[name].append(run())
    return took


def report(results: Iterable[Result], as_json: bool) -> None:
    if as_json:
        for result in results:
            click.echo(result.to_json())
        return
    known = list(results)
    show(known)
    sides = [(one, side) for one in known for side in (one.ours, one.other) if side]
    seen = [(f"{one.case}, {side.name}", *what) for one, side in sides for what in side.also.items()]
    for line in dict.fromkeys(f"{of}: {name} {_value(value)}" for of, name, value in seen):
        click.echo(line)


def show(results: Sequence[Result]) -> None:
    """Print a table on standard output, as plain text if it is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE, no_color=True, highlight=False)
    table = Table(*_HEADINGS, box=box.SIMPLE if console.is_terminal else box.MARKDOWN)
    for column in table.columns[-3:]:
        column.justify = "right"
    for result in results:
        table.add_row(*map(Text, row(result)))
    console.print(table, Text(_CAPTION), sep="")


def row(result: Result) -> tuple[str, ...]:
    """Return the cells of a result, in the order of `_HEADINGS`."""
    ratios = (_NONE if ratio is None else _digits(ratio) for ratio in (result.cpu_ratio, result.wall_ratio))
    other = str(result.other) if result.other else _NONE
    return result.benchmark, result.case, str(result.ours), other, *ratios, str(result.turns or _NONE)


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.5g}" if isinstance(value, float) else f"{value:,}"


def duration(seconds: float) -> str:
    """Format seconds as `1.23 s`, `45.6 ms` or `7.89 us`."""
    unit, size = next((one for one in _UNITS if seconds >= one[1]), _UNITS[-1])
    return f"{_digits(seconds / size)} {unit}"


def _digits(value: float) -> str:
    """Format a number with three significant digits, or without decimals."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
