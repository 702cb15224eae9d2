"""Memory of a process, and the amount of input that justifies another process.

A process is worth its start if it works about as long as it takes to start.
"""

from __future__ import annotations

# Maximum memory of a process.
MEMORY = 1 << 30  # reads with Arrow
TENSORFLOW_MEMORY = 2 << 30  # loads TensorFlow and a graph or a model
STEP_MEMORY = 4 << 30  # a step of a pipeline, with TFX and a model

# Bytes of input for each process.
INGEST_BYTES = 32 << 20  # ingesting them as CSV takes about 1.7 s; a process takes 0.8 s to start
STATISTICS_BYTES = 32 << 20  # of compressed shards. Reading them takes 2.5 s; a process takes 1 s to start
SURVEY_BYTES = 128 << 20  # of text: scanning it takes about 2.7 s; a process takes 1 s to start
TRANSFORM_BYTES = 96 << 20  # compressed: a process takes about 8 s to load TensorFlow and tft
EVALUATE_BYTES = 96 << 20  # of examples: a process takes about 8 s to load TensorFlow, TFMA and a model
COUNT_BYTES = 256 << 20  # of examples that are only counted
PREDICT_BYTES = 64 << 20  # of examples: a process takes about 5 s to load TensorFlow and a model
