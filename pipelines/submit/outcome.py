"""What became of a run, for people and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from infeed.pipelines.commands.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LOST
from infeed.pipelines.submit.follow import blames_image
from infeed.pipelines.submit.run import Run, RunState, Status

_ENDINGS = {
    "finished": Text("finished", style="green"),
    "cancelled": Text("cancelled", style="bold red"),
    "started": Text("it runs by itself now; its page shows how far it is, and --wait would have stayed with it"),
    "left": Text("not waiting any more; the run goes on by itself, and is stopped on its page"),
    "unknown": Text("lost sight of the run, which goes on by itself", style="bold yellow"),
}
_EXITS = {"failed": EXIT_FAILED, "cancelled": EXIT_FAILED, "unknown": EXIT_LOST, "left": EXIT_INTERRUPTED}


@dataclass(frozen=True)
class Outcome:
    """A run as far as it was followed.

    Args:
      state: a `RunState`; or `started` where nobody waited, `left` where waiting was stopped, and `unknown` where the
        platform could not be asked any more. In these three the run goes on by itself.
      status: the last one that was seen.
      log_tail: the last lines of the failed step's log, where the platform gives them.
      reason: why the state is unknown.
    """

    run: Run
    state: str
    status: Status | None = None
    log_tail: Sequence[str] = ()
    reason: str | None = None

    @property
    def exit_code(self) -> int:
        return _EXITS.get(self.state, 0)

    def advice(self, images: Sequence[str]) -> str | None:
        """What to look at first after a failure, where what was said points to one of the job's `images`."""
        failed = self.status.failed if self.status else None
        said = [self.status.error if self.status else None, failed.error if failed else None, *self.log_tail]
        if self.state != RunState.FAILED.value or not images or not blames_image(said):
            return None
        return f"compare the image with this machine: infeed doctor --image {images[0]}"

    def as_json(self, images: Sequence[str]) -> dict[str, Any]:
        return {
            "run": {"id": self.run.id, "name": self.run.name, "link": self.run.link},
            "state": self.state,
            "error": self.reason or (self.status.error if self.status else None),
            "warning": self.run.warning,
            "steps": [dataclasses.asdict(step) for step in self.status.steps] if self.status else [],
            "log_tail": list(self.log_tail),
            "advice": self.advice(images),
        }

    def as_text(self, images: Sequence[str]) -> Text:
        """How it ended, line by line and not as a table, so that a command can be copied whole."""
        if self.state == RunState.FAILED.value and self.status is not None:
            lines = self._failure(self.status)
        else:
            lines = [_ENDINGS[self.state], *([Text(self.reason)] if self.reason else [])]
        if self.run.warning:
            lines.append(Text(self.run.warning, style="bold yellow"))
        if advice := self.advice(images):
            lines.append(Text(f"next  {advice}", style="bold"))
        return Text("\n").join(lines)

    def _failure(self, status: Status) -> list[Text]:
        step = status.failed
        lines = [Text(f"failed at {step.name}" if step else "failed", style="bold red")]
        if error := (step and step.error) or status.error:
            lines.append(Text(error))
        lines += [Text(f"  {line}", style="dim") for line in self.log_tail]
        return [*lines, Text(f"log   {step.log}")] if step and step.log else lines
