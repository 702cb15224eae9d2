"""Evaluate a model by the config of a project, and bless it."""

from __future__ import annotations

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.evaluation import evaluate as plain
from infeed.components.evaluation.pairs import BeyondError
from infeed.components.evaluation.predictor import model_folder
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.judging import eval_config, model_reports
from infeed.pipelines.steps.folders import BLESSED, NOT_BLESSED, new_folder


def evaluate(
    config: PipelineConfig, dataset: str, model: str, output: str, baseline: str | None = None, overwrite: bool = False
) -> bool:
    """Evaluate a model on the split `config.judged_on`, write TFMA's files and the blessing, and return the blessing.

    `model`, and the `baseline` to compare with, are folders of a SavedModel, or of numbered versions. The newest
    version is used. Raises InfeedError if the model or the dataset does not fit the config.
    """
    models = {is_baseline: model_folder(one) for is_baseline, one in ((False, model), (True, baseline)) if one}
    folders = [names.split_dir(dataset, config.judged_on)]
    with user_code.translate_errors(), new_folder(output, overwrite) as evaluation:
        try:
            completed = plain.completed(eval_config(config), has_baseline=bool(baseline))
            verdict = plain.evaluate(completed, [dataset], folders, models, evaluation, reports=model_reports(config))
        except BeyondError as error:
            do = "use infeed run, which leaves this to TFX"
            raise InfeedError(f"only TFX can evaluate this: {error}", where=model, do=do) from error
        files.write_bytes(files.join(evaluation, BLESSED if verdict.validation_ok else NOT_BLESSED), b"")
    return bool(verdict.validation_ok)
