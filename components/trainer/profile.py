"""`input_profile.json`: what feeding cost this training, for InputReport and for people."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from infeed.components.feed.plan import InputPlan
from infeed.components.trainer.epochs import EpochRecord

FILE = "input_profile.json"
FORMAT = 1


def write_profile(
    folder: str, plan: InputPlan, epochs: tuple[EpochRecord, ...], ceiling: dict[str, Any], **run: Any
) -> None:
    """Writes the profile under a temporary name first. `run` says how it ran: strategy, replicas, hosts."""
    profile = {
        "format": FORMAT,
        **run,
        "batch_size": plan.batch_size,
        "steps_per_epoch": plan.steps_per_epoch,
        "epochs": [dataclasses.asdict(epoch) for epoch in epochs],
        "ceiling": ceiling,
        "plan": plan.to_dict(),
        "bytes": plan.bytes,
    }
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, FILE)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(profile, file, indent=1)
    os.replace(path + ".tmp", path)
