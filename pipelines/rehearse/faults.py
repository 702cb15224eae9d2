"""Failures that are made on purpose: what a preempted machine or a full disk would do, when it is convenient."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.dag import Task


@dataclass(frozen=True)
class Faults:
    """What is to go wrong.

    Attributes:
      deaths: by node, how many of its first attempts are killed once they have begun to write.
      leavings: nodes whose attempts all write to one place, as where the pod alone is started again: the second attempt
        finds what the first, which is killed, has left behind.
    """

    deaths: Mapping[str, int] = field(default_factory=dict)
    leavings: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, fail: Sequence[str], leave: Sequence[str]) -> Faults:
        """Reads `NODE` or `NODE:3` of each `--fail`, and the nodes of `--leave`, which fail once unless told otherwise.

        Raises:
          InfeedError: the number is not one.
        """
        deaths = dict.fromkeys(leave, 1)
        for text in fail:
            node, colon, count = text.partition(":")
            if colon and not (count.isdecimal() and int(count)):
                do = f"write --fail {node}:2, say, for the first two attempts"
                raise InfeedError(f"{count!r} is not a number of attempts", where=f"--fail {text}", do=do)
            deaths[node] = int(count) if colon else 1
        return cls(deaths, frozenset(leave))

    def check(self, tasks: Sequence[Task]) -> None:
        """Raises InfeedError unless these are steps of the job that can fail in that way."""
        steps = {task.node: task for task in tasks if task.executor and "container" in task.executor}
        for node in self.deaths:
            if node not in steps:
                do = f"the steps that run something: {', '.join(steps)}"
                raise InfeedError(f"there is no step {node!r} to fail", do=do)
        for node in sorted(self.leavings):
            if not steps[node].retries:
                raise InfeedError(
                    f"{node} is not retried, so there is no attempt to find what an earlier one left",
                    do="give it retries in the config's deploy.resources, and compile again",
                )


def has_begun(folders: Sequence[str]) -> bool:
    """Whether any of the outputs exists in part: the moment at which a death does the most harm."""
    return any(os.path.isfile(path) or any(files for _, _, files in os.walk(path)) for path in folders)
