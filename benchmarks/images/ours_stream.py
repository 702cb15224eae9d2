"""tfx-infeed, tier `stream`: records kept in memory, decoded in every epoch."""

from __future__ import annotations

from functools import partial

import ours
from protocol import serve

if __name__ == "__main__":
    serve(partial(ours.make, tier="stream"))
