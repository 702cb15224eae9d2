"""tfx-infeed, tier `columns`: pictures decoded once and held as uint8."""

from __future__ import annotations

from functools import partial

import ours
from protocol import serve

if __name__ == "__main__":
    serve(partial(ours.make, tier="columns"))
