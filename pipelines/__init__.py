"""Pipelines: from a project's files to a run here, or to a compiled job elsewhere."""

import pyarrow_hotfix as pyarrow_hotfix  # before anything reads; see infeed.components
