"""Dataset for an evaluation, from the rows of a table with labels, read with the options of the training files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import schemas
from infeed.components.dataset.manifest import Manifest, Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.evaluation.predictor import UNKNOWN, Predictor, RawColumns, RawSignature, model_folder
from infeed.components.example_gen import ingest
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource, Task
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.predict.inputs import IMAGE, open_tables, rows
from infeed.pipelines.predict.tables import InputTable
from infeed.pipelines.surveys import TableSurvey

_TRUTH = pa.array(["true", "false"])


def write_labeled(model: str, path: str, config: PipelineConfig, output: str) -> Manifest:
    """Write the rows of a table, or of a folder of tables, as the split `config.judged_on` of a dataset.

    Each cell becomes the type that the model reads, as in `infeed predict`, and the label becomes the type of training.
    Rows without a label are counted as filtered. The filter, the required columns and `on_bad_row` of the config apply.

    Raises InfeedError if the model takes images, a column is missing, or a row does not fit and `on_bad_row` is fail.
    """
    folder = model_folder(model)
    known, survey = RawColumns.of(folder), config.survey
    if not isinstance(survey, TableSurvey) or (known and set(known.columns) == {IMAGE}):
        do = "write the images as a dataset: infeed ingest IMAGES DATASET, and give --dataset DATASET"
        raise InfeedError("the model takes images, and this is not a dataset of images", where=path, do=do)
    labels, trained = [one.column.name for one in survey.labels], known.source_options if known else {}
    features = known.columns if known else ()
    tables = open_tables([path], {*features, *labels}, {}, trained)
    # One by one, because JSON Lines may lack some of several columns, but no label.
    for table, label in itertools.product(tables, labels):
        table.check_columns([label])
    specs = {**RawSignature.of(Predictor.load(folder)).raw.inputs, **_parsed(known, tables, survey)}
    options = IngestOptions(
        shuffle_seed=None,
        filter=config.ingest.filter,
        required=config.ingest.required,
        labeled=config.ingest.labeled,
        on_bad_row=config.ingest.on_bad_row,
        bad_row_limit=config.ingest.bad_row_limit,
    )
    # A source with the columns of `specs` in the model's types, and all other columns as read.
    first = next(tables[0].blocks()).rows.schema
    fields = [pa.field(name, _type_of(spec)) for name, spec in specs.items()]
    schema = pa.schema([*fields, *(field for field in first if field.name not in specs)])
    tasks = tuple(Task(order, table) for order, table in enumerate(tables))
    how = {"specs": specs, "labels": labels, "words": config.ingest.words, "schema": schema, "known": known or UNKNOWN}
    opened = OpenedSource(Source.of("table", path, []), schema, tasks, partial(_read, **how), decimals=True, place=path)
    buckets = Buckets(((config.judged_on, 1),))
    return ingest.ingest(opened.tasks, ingest.Job.of(opened, output, buckets.names, buckets, options))


def _parsed(known: RawColumns | None, tables: list[InputTable], survey: TableSurvey) -> dict[str, Any]:
    """Return TensorSpecs of the labels, and of columns with a type in training that a prediction does not need."""
    import tensorflow as tf

    kinds = {"bytes": tf.string, "int": tf.int64, "float": tf.float32}
    labels = {one.column.name: one for one in survey.labels}
    types = {**{name: one.column.type for name, one in labels.items()}, **(known.types if known else {})}
    shapes = {name: [None, None] for name, one in labels.items() if one.task == "multilabel"}
    there = {name for table in tables for name in table.names}
    but = set(known.columns) if known else set()
    return {
        name: tf.TensorSpec(shapes.get(name, [None]), kinds[one]) for name, one in types.items() if name in there - but
    }


def _type_of(spec: Any) -> pa.DataType:
    kind = pa.float64() if spec.dtype.is_floating else pa.int64() if spec.dtype.is_integer else pa.binary()
    return kind if spec.shape.rank == 1 else pa.list_(kind)


def _read(
    table: InputTable,
    *,
    specs: Mapping[str, Any],
    labels: Sequence[str],
    words: tuple[str, ...],
    schema: pa.Schema,
    known: RawColumns,
    bad_rows: BadRows,
) -> Iterator[pa.RecordBatch]:
    for batch in rows([table], specs, labels, known):
        for place, reason in sorted(batch.wrong.items()):
            bad_rows.report(BadRow(batch.names[place], None, None, reason, ""))
        fitted = {}
        for name, spec in specs.items():
            cells = [None if one == "" or one != one else one for one in batch.cells[name]]  # NaN differs from itself
            fitted[name] = pa.array(cells, _type_of(spec))
        # Booleans in lower case, as ingest writes them after it reads True and TRUE as booleans.
        for name in (name for name in words if name in fitted):
            lower = pc.utf8_lower(fitted[name].cast(pa.string()))
            fitted[name] = pc.if_else(pc.is_in(lower, _TRUTH), lower.cast(fitted[name].type), fitted[name])
        # The other columns of the rows that fit.
        assert batch.rows is not None, "the inputs are tables"
        read = [place for place in range(len(batch.names)) if place not in batch.unread]
        kept = batch.rows.filter(pa.array([place not in batch.wrong for place in read], pa.bool_()))
        others = {name: kept.column(place) for place, name in enumerate(kept.schema.names) if name not in fitted}
        yield schemas.fill(pa.RecordBatch.from_pydict({**fitted, **others}), schema)
