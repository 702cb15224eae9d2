"""`input_profile.json`: what feeding cost this training, for InputReport and for people."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from infeed.components.dataset import files
from infeed.components.feed.plan import InputPlan
from infeed.components.trainer.epochs import EpochRecord

FILE = "input_profile.json"
FORMAT = 1


def write_profile(
    folder: str, plan: InputPlan, epochs: tuple[EpochRecord, ...], ceiling: dict[str, Any], **run: Any
) -> None:
    """Writes the profile, into any kind of store. `run` says how it ran: strategy, replicas, hosts."""
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
    files.write_bytes(files.join(folder, FILE), json.dumps(profile, indent=1).encode())
