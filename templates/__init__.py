"""Templates that `infeed new` copies."""

import pyarrow_hotfix as pyarrow_hotfix  # before any reader; see infeed.components
