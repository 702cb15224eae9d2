"""Staying with a run until it ends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from infeed.pipelines.local.nodes import NodeState
from infeed.pipelines.submit.run import Run, RunState, Status, Step

POLL_SECONDS = 5.0
_WRITE = {NodeState.RUNNING, NodeState.DONE, NodeState.FAILED}

# What Python, Kubernetes and Vertex AI say when an image is not there, or holds other packages than the job expects.
_IMAGE = re.compile(
    r"No module named|ImportError|cannot import name|ErrImagePull|ImagePullBackOff|InvalidImageName"
    r"|executable file not found|failed to pull|unexpected keyword argument|unrecognized arguments",
    re.IGNORECASE,
)


def follow(run: Run) -> Iterator[Status]:
    """The run's state every few seconds, at last the one it ended in. Raises what `run.status` raises."""
    while True:
        status = run.status()
        yield status
        if status.state is not RunState.RUNNING:
            return
        time.sleep(POLL_SECONDS)


class NewLines:
    """What the steps of a run write, each line once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ended: set[str] = set()

    def __call__(self, steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
        """Pairs of a step's name and a line, of those that run and, once more, of those that have ended."""
        for step in steps:
            if step.state not in _WRITE or step.name in self._ended:
                continue
            if step.state is not NodeState.RUNNING:
                self._ended.add(step.name)
            for line in self._run.new_lines(step):
                yield step.name, line


def blames_image(texts: Iterable[str | None]) -> bool:
    """Whether what a failed step said points to its container image rather than to its work."""
    return any(_IMAGE.search(text) for text in texts if text)
