"""Transform a dataset by the config of a project."""

from __future__ import annotations

from infeed.components.base import limits, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.reading import split_names
from infeed.components.engine.choice import ChosenMap
from infeed.components.statistics.inference import infer_schema
from infeed.components.transform import plain
from infeed.pipelines.config import TRAIN, PipelineConfig
from infeed.pipelines.steps.folders import check_new, new_folder


def transform(config: PipelineConfig, dataset: str, output: str, rows: str | None, overwrite: bool) -> None:
    """Write the transform graph to `output`, and the transformed rows to `rows`, if given.

    Raises InfeedError if the dataset has no split train, or does not fit the features.
    """
    splits = split_names(dataset)
    if TRAIN not in splits:
        raise InfeedError(f"there is no split {TRAIN!r}", where=dataset, do="ingest the data of the project again")
    if rows:
        check_new(rows, overwrite)
    schema = infer_schema(dataset, splits, ChosenMap("reads", limits.STATISTICS_BYTES))
    function = config.preprocessing_fn and user_code.load(config.preprocessing_fn, "preprocessing_fn")
    with user_code.translate_errors(), new_folder(output, overwrite) as graph:
        if not rows:
            plain.transform(dataset, schema, config.features, function or None, graph)
            return
        with new_folder(rows, overwrite) as transformed:
            plain.transform(dataset, schema, config.features, function or None, graph, transformed)
