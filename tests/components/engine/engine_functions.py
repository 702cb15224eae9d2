"""What the engine's tests run on workers, which import it by its name."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError


@dataclass(frozen=True)
class Item:
    """A number and a folder for marks."""

    number: int
    folder: str = ""

    @property
    def place(self) -> str:
        return f"item {self.number}"


def square(item: Item) -> int:
    progress.count("square", 1)
    return item.number**2


def shifted(by: int, item: Item) -> int:
    return item.number + by


def third(item: Item) -> float:
    return 1 / (3 * item.number + 1)


def twice(item: Item) -> Iterator[int]:
    yield from (item.number, item.number)


def process(item: Item) -> int:
    return os.getpid()


def temporary_file(item: Item) -> tuple[int, str]:
    """As AutoGraph writes them: to be removed when the process ends, which a fork leaves out."""
    time.sleep(0.1)  # so that each process has one
    with tempfile.NamedTemporaryFile(delete=False) as file:
        atexit.register(Path(file.name).unlink, missing_ok=True)
    return os.getpid(), file.name


def add(one: float, other: float) -> float:
    return one + other


def refuse_from_three(item: Item) -> int:
    if item.number >= 3:
        raise InfeedError(f"{item.number} is too large", where=item.place, do="give less")
    return item.number


def mark(item: Item) -> int:
    """Leaves a mark for each call, and dies at the first call for item 5."""
    Path(item.folder, f"{item.number}-{os.getpid()}-{len(os.listdir(item.folder))}").touch()
    if item.number == 5 and len(list(Path(item.folder).glob("5-*"))) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item.number


def die_once(parent: int, item: Item) -> int:
    """Leaves a mark for each call. The first worker, a process other than `parent`, dies of it."""
    marks = Path(item.folder)
    (marks / f"{item.number}-{os.getpid()}-{len(os.listdir(marks))}").touch()
    if os.getpid() != parent and not (marks / "died").exists():
        (marks / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item.number


def die_always(parent: int, item: Item) -> int:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return item.number


def environment(item: Item) -> tuple[int, str]:
    time.sleep(0.1)
    return os.getpid(), os.environ["INFEED_TEST_WORKERS"]


def kill_score(item: Item) -> int:
    time.sleep(0.1)
    return int(Path("/proc/self/oom_score_adj").read_text())


def meet(item: Item) -> int:
    """Waits until two processes do items at the same time. Returns which process this is."""
    Path(item.folder, str(os.getpid())).touch()
    while len(os.listdir(item.folder)) < 2:
        time.sleep(0.01)
    return os.getpid()


def set_up() -> str:
    return f"made in {os.getpid()}"


def with_set_up(made: str, item: Item) -> tuple[str, int]:
    return made, item.number


def wait(item: Item) -> None:
    Path(item.folder, str(os.getpid())).touch()
    signal.pause()


def stand_still(processes: int, environment: dict[str, str]) -> None:
    signal.pause()
