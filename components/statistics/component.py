"""StatisticsGen: TFX's component, argument for argument, from what ingest has counted."""

from __future__ import annotations

import tfx.components
from tfx.dsl.components.base import executor_spec

from infeed.components.statistics import executor


class StatisticsGen(tfx.components.StatisticsGen):
    """Describes the columns of each split, for SchemaGen, ExampleValidator and people.

        StatisticsGen(examples=example_gen.outputs["examples"])

    The arguments and the output `statistics` are those of TFX's StatisticsGen. The figures come from the column
    statistics that ingest leaves beside the manifest, so that no record is read. Examples that somebody else wrote are
    read once, without Beam, and what was found is kept for the next time.

    Figures that cannot be had from there are computed by TFX's own executor on Beam, and the log says why: slices,
    weights, samples, statistics of semantic domains, a smaller `epsilon`, and a schema with sparse, weighted, nested or
    natural language features; records that are no tf.Examples, and splits by a pattern of file names.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.StatisticsExecutor)
