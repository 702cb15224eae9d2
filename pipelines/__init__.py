"""Pipelines: run a project on this machine, or compile it into a job for a cluster."""

import pyarrow_hotfix as pyarrow_hotfix  # must precede all reads; see infeed.components
