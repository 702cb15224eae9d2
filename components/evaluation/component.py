"""Evaluator: TFX's component, argument for argument, in batches and without Beam."""

from __future__ import annotations

import tfx.components
from tfx.dsl.components.base import executor_spec

from infeed.components.evaluation import executor


class Evaluator(tfx.components.Evaluator):
    """Measures a model on examples, slice by slice, compares it with a baseline, and blesses it if it is good enough.

        Evaluator(
            examples=example_gen.outputs["examples"],
            model=trainer.outputs["model"],
            baseline_model=resolver.outputs["model"],
            eval_config=eval_config,
        )

    The arguments and the outputs `evaluation` and `blessing` are those of TFX's Evaluator, and so are the numbers: TFMA
    says which metrics there are and how each follows from what is counted of the rows, which is counted here over
    batches of thousands.

    What is not counted here is left to TFX's own executor on Beam for the whole run, and the log says why: metrics of
    other kinds, confidence intervals, `query_key`, averages over classes, models with several outputs or without a
    signature that takes serialized tf.Examples, and functions in `module_file`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.EvaluatorExecutor)
