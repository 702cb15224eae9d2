"""The templates that `infeed new` copies out."""

import pyarrow_hotfix as pyarrow_hotfix  # before anything reads; see infeed.components
