"""Findings about a model, from the collected data and the metrics of its evaluation."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from infeed.components.base.units import percent, significant
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.evaluation.model_report.collected import (
    Collected,
    Curve,
    Kept,
    Scored,
    Sums,
    curve_classes,
    losses_of,
)
from infeed.components.evaluation.model_report.importance import (
    MOST_COLUMNS,
    Importance,
    WorstGroups,
    importances,
    rows_for,
    shown,
    worst_groups,
)
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.pairs import Array

Predict = Callable[[Sequence[bytes]], Array]
_MOST_CELLS, _MOST_CHARACTERS = 8, 300  # limits for a row in the table of worst rows
_THUMBNAIL, _MOST_BYTES = 160, 8 << 20
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF")


@dataclass(frozen=True)
class WorstRow:
    """A row with one of the largest losses."""

    place: str  # shard and number of the record
    is_right: bool  # whether the class is correct. For a number, whether it is exact
    label: str
    predicted: str
    loss: float
    cells: Mapping[str, str]  # cell texts by column
    picture: str  # data URI of a thumbnail. Empty if the row has no image


@dataclass(frozen=True)
class ModelFindings:
    """Contents of the report besides the metrics."""

    report: ModelReport
    sums: Sums  # sums of the model
    baseline: Sums | None  # sums of the baseline, if any
    curves: Mapping[str, Curve]  # curves by class name
    baseline_curve: Curve | None  # curve of the positive class of two. None if there is none
    both: Array | None  # int64 [2, 2], see `Collected`. None without a baseline
    sample: Scored
    importances: tuple[Importance, ...]  # by column. Empty if the model reads a single column
    shuffled_rows: int  # number of rows that were shuffled
    left_out: int  # number of columns that were not shuffled
    groups: WorstGroups
    worst: tuple[WorstRow, ...]

    @classmethod
    def of(
        cls,
        report: ModelReport,
        collected: Collected,
        labels: Collection[str],
        raw_features: Sequence[str],
        predict: Predict,
    ) -> ModelFindings:
        """Return the findings. This shuffles the columns of sampled rows, except the labels, to measure importance.

        `raw_features` are the columns that the model reads. Empty if unknown.
        """
        assert collected.sample is not None, "findings require rows"
        assert collected.worst is not None, "findings require rows"
        (mine, *others), sample = list(collected.sums.values()), collected.sample
        scored = losses_of(sample.labels, sample.scores, report)
        columns = {
            name: column
            for name, column in decode_columns(sample.records).items()
            if name not in labels
            and not (raw_features and name not in raw_features and _is_label(column, scored.labels))
        }
        read = [name for name in columns if not raw_features or name in raw_features]
        shuffled, rows = _shuffled(report, sample, read, predict)
        # A value that all rows share, such as the image format, is not informative.
        varied = [name for name, column in columns.items() if len(sample) < 2 or len(column.flatten().unique()) > 1]
        order = [one.column for one in shuffled if one.column in varied] or sorted(varied, key=lambda x: x not in read)
        errors = scored.losses if report.task == "regression" else 1.0 - scored.is_right
        curves, baseline_curve = _curves(report, mine, others, scored.scores.shape[1])
        return cls(
            report=report,
            sums=mine,
            baseline=others[0] if others else None,
            curves=curves,
            baseline_curve=baseline_curve,
            both=collected.both if others and report.task != "regression" else None,
            sample=scored,
            importances=tuple(shuffled),
            shuffled_rows=rows,
            left_out=max(0, len(read) - MOST_COLUMNS),
            groups=worst_groups(columns, scored.losses, errors),
            worst=tuple(_worst_rows(report, collected.worst, order)),
        )


def _is_label(column: pa.Array, labels: Array) -> bool:
    """Return whether a column encodes the label: a one-to-one mapping between its values and the classes."""
    pairs = set(zip(map(repr, column.to_pylist()), map(repr, labels.tolist()), strict=True))
    values, classes = (len({pair[place] for pair in pairs}) for place in (0, 1))
    return 1 < len(pairs) == values == classes < len(labels)


def _shuffled(
    report: ModelReport, sample: Kept, columns: Sequence[str], predict: Predict
) -> tuple[list[Importance], int]:
    """Return the importances and the number of rows. Empty for a single column, whose importance is meaningless."""
    chosen = columns[:MOST_COLUMNS]
    rows = min(rows_for(len(chosen)), len(sample))
    if len(chosen) < 2 or rows < 2:
        return [], 0

    def losses(records: Sequence[bytes]) -> Array:
        labels = np.concatenate([sample.labels[:rows]] * (len(records) // rows))
        return losses_of(labels, predict(records), report).losses

    return importances(sample.records[:rows], chosen, losses), rows


def _curves(
    report: ModelReport, mine: Sums, others: Sequence[Sums], classes: int
) -> tuple[dict[str, Curve], Curve | None]:
    if report.task == "regression":
        return {}, None
    shown = curve_classes(classes, report)
    found = {
        report.name_of(one): curve
        for one, buckets in zip(shown, mine.buckets, strict=True)
        if (curve := Curve.of(buckets))
    }
    is_comparable = len(shown) == 1 and others and len(others[0].buckets) == 1
    return found, Curve.of(others[0].buckets[0]) if is_comparable else None


def _worst_rows(report: ModelReport, kept: Kept, order: Sequence[str]) -> Iterator[WorstRow]:
    columns = {name: column.to_pylist() for name, column in decode_columns(kept.records).items()}
    names = [name for name in order if name in columns]
    rows = losses_of(kept.labels, kept.scores, report)
    for row, (shard, number) in enumerate(kept.places):
        values = {name: columns[name][row] or [] for name in names}
        cells = {name: _text(one) for name, one in values.items() if not _is_picture(one)}
        label, predicted = rows.labels[row], rows.predicted[row]
        if report.task == "regression":
            words = significant(float(label)), significant(float(predicted))
        elif report.task == "multilabel":
            words = _set_in_words(label, report), _set_in_words(predicted, report, rows.scores[row])
        else:
            sure = percent(rows.scores[row, int(predicted)])
            words = report.name_of(int(label)), f"{report.name_of(int(predicted))} ({sure})"
        yield WorstRow(
            place=f"{shard}, record {number}",
            is_right=bool(rows.is_right[row]),
            label=words[0],
            predicted=words[1],
            loss=float(rows.losses[row]),
            cells=dict(list(cells.items())[:_MOST_CELLS]),
            picture=next(filter(None, (_thumbnail(value) for one in values.values() for value in one[:1])), ""),
        )


def _set_in_words(chosen: Array, report: ModelReport, scores: Array | None = None) -> str:
    """Return the names of a set of classes, bool [classes], the most probable first."""
    numbers = np.flatnonzero(chosen)
    if scores is None:
        return _text([report.name_of(one) for one in numbers.tolist()]) or "no class"
    numbers = numbers[np.argsort(-scores[numbers], kind="stable")]
    return _text([f"{report.name_of(one)} ({percent(scores[one])})" for one in numbers.tolist()]) or "no class"


def _text(values: Sequence[Any]) -> str:
    texts = [shown(one) for one in values[:20]]
    text = ", ".join(texts) + ("" if len(values) <= 20 else f", … ({len(values):,} values)")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _is_picture(values: Sequence[Any]) -> bool:
    return bool(values) and isinstance(values[0], bytes) and values[0].startswith(_PICTURES)


def _thumbnail(value: Any) -> str:
    """Return an image as a small data URI. Empty if the value is not an image that Pillow can open."""
    if not _is_picture([value]) or len(value) > _MOST_BYTES:
        return ""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(value)) as picture:
            picture.draft("RGB", (_THUMBNAIL, _THUMBNAIL))
            small = picture.convert("RGB")
            small.thumbnail((_THUMBNAIL, _THUMBNAIL))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # errors of Pillow for damaged images
        return ""
    written = io.BytesIO()
    small.save(written, "PNG" if max(small.size) <= 64 else "JPEG", quality=85)
    kind = "png" if max(small.size) <= 64 else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}"


def likely_confusions(findings: ModelFindings, most: int = 15) -> list[tuple[str, str, int]]:
    """Return (actual, predicted, rows) of the most frequent errors."""
    matrix = np.array(findings.sums.matrix)
    if not matrix.ndim:
        return []
    np.fill_diagonal(matrix[:-1] if len(matrix) > matrix.shape[1] else matrix, 0)
    places = np.argsort(-matrix, axis=None, kind="stable")[:most]
    rows, columns = np.unravel_index(places, matrix.shape)
    name, last = findings.report.name_of, matrix.shape[1]
    return [
        (name(-1 if row == last else row), name(column), int(matrix[row, column]))
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        if matrix[row, column]
    ]
