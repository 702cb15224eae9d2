"""The plan in README is the one that the feed prints for the scanned digits of `make run`."""

from __future__ import annotations

import re
from pathlib import Path

from infeed.components.feed.capacity import Machine, RecordSizes
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile

README = (Path(__file__).parents[3] / "README.md").read_text()
DIGIT = RecordSizes(record_bytes=150, feature_bytes=72)  # 8 x 8 pixels and an int64
CHANGES = (
    "shifts by up to 1 px with reflected edges, rotates by up to 10 degrees, cuts out 2 x 2 px, "
    "normalizes by mean 0.5 and deviation 0.5, compiled by XLA"
)


def test_the_plan_in_readme_is_printed() -> None:
    (shown,) = re.findall(r"```\n(columns: .*?)\n```", README, re.DOTALL)
    spec = FeedSpec(True, DIGIT, augmentation=CHANGES, epochs=60)
    made = plan([ShardFile("a.gz", 1280, 60_000)], spec, FeedOptions(batch_size=64), Machine(2, 25_200_000_000))
    assert made.describe() == shown
