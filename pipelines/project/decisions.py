"""Decisions from a survey of the data: the metric of the model, the training schedule, and notes about the data.

Every skipped column has a note. The config overrides decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, get_args

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted, significant
from infeed.components.transform.feature import Feature
from infeed.components.transform.infer import are_whole
from infeed.components.transform.kinds.image import DecodeImage
from infeed.pipelines.config import Blessing, Metric
from infeed.pipelines.surveys import ColumnSurvey, ImageSurvey, Survey, TableSurvey

# Share of the majority class at which accuracy no longer distinguishes a good model from a constant one.
_IMBALANCED = 2 / 3
_SEE_CLASSES = ("auc", "recall", "precision", "f1")
_METRICS = {
    "classification": ("accuracy", "recall", "precision", "f1"),
    "regression": ("mse",),
    "multilabel": ("recall", "precision", "f1"),
}
_MAX_QUANTITY_CLASSES = 20
_FEW_ROWS = 20  # average number of rows per class
_RARE = 5  # maximum rows of a class that is too rare to evaluate
_MIN_NAMED = 20  # with fewer rows, numbers may be distinct by chance
_SHOWN = 12  # maximum columns or classes to list by name

# With few rows, an epoch has few steps, so there are many epochs. With many rows, an epoch has hundreds of steps, and
# larger batches spread the fixed cost of a step over more rows.
_STEPS_PER_EPOCH = 128  # target steps per epoch, so that an evaluation after each epoch pays
_STEPS = 3_000  # with Adam, small models rarely improve after this number of steps
_LEAST_EPOCHS = 10
_MOST_EPOCHS = {"rows": 100, "images": 20}
_FEWEST_STEPS = 200  # minimum steps of image models, whose epochs may be short, but at most 100 epochs
_SMALLEST_BATCH = 64
# A step of 1,024 table rows costs little more than a step of 64. An image costs thousands of times as much as a row.
_LARGEST_BATCH = {"rows": 1024, "images": 256}
# Share of the epochs without improvement that ends training. The templates lower the learning rate over all epochs,
# and improve most near the end.
_PATIENCE = 1 / 3

_RESIZED = {
    "stretch": "stretched or squeezed, which changes the aspect ratio",
    "fit": "shown whole, padded with black",
    "crop": "cropped to the right aspect ratio",
}

Note = tuple[str, str]


def choose_blessing(survey: Survey, given: Any) -> Blessing:
    """Complete the blessing of the config from the data.

    Raises InfeedError if the metric does not fit the task, the class does not exist, or the bound must be set.
    """
    if not isinstance(given, Mapping):
        return schema.read(Blessing, given, "blessing")
    chosen = {name: value for name, value in given.items() if value is not None}
    survey = _about_output(survey, chosen)
    two = survey.task == "classification" and len(survey.classes) == 2
    if "metric" not in chosen:
        of_classes = ("auc" if two else "f1") if is_imbalanced(survey) else "accuracy"
        chosen["metric"] = {"regression": "mse", "multilabel": "f1"}.get(survey.task, of_classes)
    metric = chosen["metric"]
    if metric not in get_args(Metric):
        chosen.setdefault("bound", 0)  # schema.read reports the error
        return schema.read(Blessing, chosen, "blessing")
    if metric not in (fitting := [*_METRICS[survey.task], *(["auc"] if two else [])]):
        kind = {"regression": "a regression", "multilabel": f"sets of {len(survey.classes)} classes"}
        what = f"metric is {metric!r}, but this is " + kind.get(
            survey.task, f"a classification of {len(survey.classes)} classes"
        )
        raise InfeedError(what, where="blessing.metric", do=f"use one of {', '.join(fitting)}")
    if metric in _SEE_CLASSES and two:
        chosen.setdefault("positive", survey.classes[survey.class_rows.index(min(survey.class_rows))])
    positive = chosen.get("positive")
    if positive is not None and survey.task == "multilabel":
        what = f"positive is {positive!r}, but {metric} is over all classes of a set"
        raise InfeedError(what, where="blessing.positive", do="leave it out")
    schema.check_known([positive] if positive is not None else [], survey.classes, "blessing.positive", "class")
    if "bound" not in chosen:
        chosen["bound"] = _guess(metric, positive, survey)
        chosen.setdefault("beat_guess", True)
    return schema.read(Blessing, chosen, "blessing")


def _about_output(survey: Survey, chosen: dict[str, Any]) -> Survey:
    """Return the survey about the label that decides. Complete or remove the `output` of a blessing."""
    names = [one.column.name for one in survey.labels] if isinstance(survey, TableSurvey) else []
    output = str(chosen.pop("output", "")) or (names[0] if names else "")
    if output not in (names or [""]):
        do = f"use one of {', '.join(map(repr, names))}" if names else "leave it out: it is for tables"
        raise InfeedError(f"there is no label {output!r}", where="blessing.output", do=do)
    if not isinstance(survey, TableSurvey) or len(names) < 2:
        return survey
    chosen["output"] = output
    return survey.about(output)


def why(survey: Survey, blessing: Blessing) -> str:
    """Describe the criterion of the blessing, with the reason for the metric."""
    of = f" of {blessing.positive!r}" if blessing.positive else ""
    of += f" for {blessing.output}" if blessing.output else ""
    words = (
        f"{blessing.metric}{of}, {'at least' if blessing.higher_is_better else 'at most'} {significant(blessing.bound)}"
    )
    if blessing.metric in _SEE_CLASSES and is_imbalanced(survey):
        commonest = survey.classes[survey.class_rows.index(max(survey.class_rows))]
        return f"{words}: always predicting {commonest!r} has an accuracy of {survey.guess:.1%}"
    return words


def is_imbalanced(survey: Survey) -> bool:
    """Return whether the majority class makes up most of the rows."""
    return survey.task == "classification" and survey.guess > _IMBALANCED


def _guess(metric: str, positive: str | None, survey: Survey) -> float:
    """Return the metric of a constant prediction."""
    share = survey.class_rows[survey.classes.index(positive)] / survey.rows if positive else survey.guess
    if metric == "auc":
        return 0.5
    if metric == "f1" and survey.task == "multilabel":
        return survey.guess
    if metric == "f1":  # predict `positive`, or the majority class, for every row
        return 2 * share / (1 + share) / (1 if positive else len(survey.classes))
    if metric in ("recall", "precision"):
        other = "precision" if metric == "recall" else "recall"
        what = f"{metric} has no default bound: it can be raised at the cost of {other}"
        raise InfeedError(
            what, where="blessing.bound", do="set a bound, such as bound: 0.8, or use the metric f1 or auc"
        )
    return survey.guess


def choose_schedule(survey: Survey, rows: int, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Complete the training options by a schedule for the approximate number of training rows.

    Returns:
      The options, and the reason for the schedule. None is a valid `patience`.
    """
    unit = "images" if isinstance(survey, ImageSurvey) else "rows"
    said = [name for name in ("batch_size", "epochs", "patience") if given.get(name) is not None]
    # The largest power of two that leaves enough steps in an epoch.
    power = 1 << (max(rows // _STEPS_PER_EPOCH, 1).bit_length() - 1)
    batch_size = _count(given.get("batch_size")) or min(max(power, _SMALLEST_BATCH), _LARGEST_BATCH[unit])
    steps = max(rows // batch_size, 1)
    most = min(max(_MOST_EPOCHS[unit], _FEWEST_STEPS // steps), 100)
    epochs = _count(given.get("epochs")) or min(max(_STEPS // steps, _LEAST_EPOCHS), most)
    # If epochs is set, there is no early stopping.
    patience = given.get("patience", None if "epochs" in said else max(2, round(_PATIENCE * epochs)))
    stops = f", fewer after {patience} epochs without a better validation loss" if patience else ""
    of_epoch = f"an epoch of about {rows:,} {unit} has {steps:,} step{'s' * (steps > 1)}, {epochs * steps:,} in total"
    given_names = f", given {' and '.join(said)}" if said else ""
    most_epochs = f"{'at most ' if patience else ''}{epochs:,} epochs"
    reason = f"batches of {batch_size:,} and {most_epochs}{stops}: {of_epoch}{given_names}"
    chosen = {"batch_size": batch_size, "epochs": epochs, "patience": patience}
    kept = {name: value for name, value in given.items() if value is not None or name not in chosen}
    return {**chosen, **kept}, reason


def _count(given: Any) -> int:
    """Return a positive integer, or 0. TrainOptions reports other values."""
    return given if isinstance(given, int) and given > 0 else 0


def notes(
    survey: Survey, data: str, features: Sequence[Feature], blessing: Blessing, function: str | None = None
) -> Iterator[Note]:
    """Yield (topic, text) notes about the data, the label, and used, skipped or suspicious columns.

    A `function` is the user's preprocessing_fn, which receives all columns.
    """
    if isinstance(survey, ImageSurvey):
        yield from _of_pictures(survey, data, features)
    else:
        yield from _of_table(survey, data, features, function)
    if survey.rejected:
        unit = "image" if isinstance(survey, ImageSurvey) else "row"
        yield "bad rows", f"{counted(survey.rejected, unit)} rejected, in rejected.jsonl beside the examples"
    yield "judged by", why(survey, blessing)


def _of_table(survey: TableSurvey, data: str, features: Sequence[Feature], function: str | None) -> Iterator[Note]:
    yield "data", f"{data}: {survey.rows:,} rows"
    labels = [one.column.name for one in survey.labels]
    for pattern in survey.unlabeled_files:
        yield "left out", f"{pattern}: no {' and '.join(labels)} to score a model by; use it with `infeed predict`"
    if survey.beside:
        yield "left out", f"{_listed(survey.beside)}: the name contains no split"
    yield from _unlabeled(survey.unlabeled, "row", labels)
    yield from (("label", _label(survey.about(name))) for name in labels)
    yield from survey.remarks
    yield from (("left out", f"{name}: {why}") for name, why in survey.not_read.items())
    if function:
        yield "learned from", f"features that {function} computes from the columns"
        return
    used = {column for feature in features for column in feature.inputs}
    names = [column.name for column in survey.columns if column.name in used]
    yield "learned from", f"{len(names)} of {len(survey.columns)} columns: {_listed(names)}"
    unused = [column for column in survey.columns if column.name not in used and not column.is_withheld]
    yield from _grouped("left out", {column.name: _left_out(column) for column in unused})
    yield from _grouped("note", {c.name: _remark(c) for c in survey.columns if c.name in used})


def nothing_to_learn_from(survey: TableSurvey, data: str) -> InfeedError:
    """Return the error for a table without usable columns, with the reason for each."""
    reasons = [f"{name} ({reason})" for name, reason in {**survey.left_out, **survey.not_read}.items()]
    advice = [f"{column.name}: {column.advice}" for column in survey.columns if column.advice]
    shown = ", ".join(reasons[:_SHOWN]) or "there is no other column"
    do = ["add numeric or categorical columns", *advice[:_SHOWN]]
    do += ["your own function can create features of any column: preprocessing_fn: file.py:function"]
    labels = " and ".join(repr(one.column.name) for one in survey.labels)
    return InfeedError(f"the model can learn {labels} from no column: {shown}", where=data, do="; ".join(do))


def _of_pictures(survey: ImageSurvey, data: str, features: Sequence[Feature]) -> Iterator[Note]:
    size = f"{survey.height} x {survey.width} px, {'gray' if survey.channels == 1 else 'RGB'}"
    others = survey.rows - survey.most
    yield "data", f"{data}: {survey.rows:,} images of {size}" + (f"; {others:,} of other sizes" if others else "")
    for feature in (one for one in features if isinstance(one, DecodeImage)):
        if others or (feature.height, feature.width) != (survey.height, survey.width):
            rules = [rule for rule in _RESIZED if rule != feature.resize]
            yield (
                "size",
                f"every image becomes {feature.height} x {feature.width} px; other sizes are "
                f"{_RESIZED[feature.resize]}: --resize {' or '.join(rules)} changes that",
            )
    if survey.layout.unused:
        yield "left out", f"{survey.layout.unused}: not used to train or score; use it with `infeed predict`"
    yield from _unlabeled(survey.unlabeled, "image", ["label"])
    yield "label", _classes(survey)


def _unlabeled(rows: int, unit: str, labels: Sequence[str]) -> Iterator[Note]:
    if rows:
        flags = " ".join(f"--required {quote(label)}" for label in labels)
        yield "left out", f"{counted(rows, unit)} without a label: {flags} makes them an error"


def _label(survey: TableSurvey) -> str:
    label = survey.label
    if survey.task != "regression":
        of = "sets of " if survey.task == "multilabel" else ""
        return "; ".join(words for words in (f"{label.name}: {of}{_classes(survey)}", label.advice) if words)
    words = f"{label.name}: a quantity, {significant(label.mean)} on average, deviation {significant(label.std)}"
    if label.distinct is not None and label.distinct <= _MAX_QUANTITY_CLASSES:
        whole = label.statistics is not None and are_whole(label.statistics)
        way = "use --task classification" if whole else "write them as integers or words"
        return f"{words}; its {label.distinct} values may be classes: then {way}"
    return words


def _classes(survey: Survey) -> str:
    rows = sorted(zip(survey.class_rows, survey.classes, strict=True), reverse=True)
    count = f"{len(rows):,} classes{_differing_in_spaces(survey.classes)}"
    if len(rows) > _SHOWN:
        few = survey.rows < _FEW_ROWS * len(rows)
        least, most = rows[-1][0], rows[0][0]
        words = f"{count} of {least:,}{f' to {most:,}' if most > least else ''} rows"
        return f"{words}: a model learns little from few rows a class" if few else words
    shares = ", ".join(f"{_shown(name)} ({number / survey.rows:.1%})" for number, name in rows)
    rare = [f"{_shown(name)} has {number} row{'s' * (number > 1)}" for number, name in rows if number < _RARE]
    missed = f"; {', '.join(rare)}: training or evaluation may miss such a rare class" if rare else ""
    return f"{count}: {shares}{missed}"


def _differing_in_spaces(classes: Sequence[str]) -> str:
    """Return a warning about classes that differ only in outer spaces, such as ` no` and `no`."""
    names = set(classes)
    spaced = [name for name in classes if name != name.strip() and name.strip() in names]
    return f" ({spaced[0]!r} differs from {spaced[0].strip()!r} only in spaces)" if spaced else ""


def _shown(name: str) -> str:
    """Quote a class name with outer spaces, because ` yes` differs from `yes`."""
    return name if name == name.strip() and name else repr(name)


def _left_out(column: ColumnSurvey) -> str:
    leak = column.leak.reason if column.useless and column.leak and column.leak.sure else ""
    return "; ".join(words for words in (column.useless or "no feature uses it", leak, column.advice) if words)


def _remark(column: ColumnSurvey) -> str:
    """Return a warning about a used column that may have another meaning."""
    if column.type == "bytes" and column.advice:
        return f"read as words; {column.advice}"
    if column.distinct == 1 and not column.missing:
        return f"every row has the same value, {column.sample}, which carries no information: leave it out"
    low = column.statistics.minimum if column.statistics else None
    # Most numbers are far below the largest, as in a population and unlike row numbers.
    is_skewed = low is not None and low >= 0 and column.std > column.mean
    is_name = column.type == "int" and column.rows >= _MIN_NAMED and column.distinct == column.rows - column.missing
    is_name = is_name and not is_skewed
    return "every row has a distinct number. If it only identifies the row, leave it out" if is_name else ""


def _grouped(about: str, words: Mapping[str, str]) -> Iterator[Note]:
    """Yield one note for all columns with the same text."""
    columns: dict[str, list[str]] = {}
    for name, said in words.items():
        columns.setdefault(said, []).append(name)
    for said, names in columns.items():
        if said:
            yield about, f"{_listed(names)}: {said}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
