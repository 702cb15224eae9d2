"""Notes about columns that give the label away, and the error of a strict run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from infeed.components.errors import InfeedError
from infeed.components.transform.feature import Feature
from infeed.pipelines.surveys import ColumnSurvey, Leak, Survey, TableSurvey

_SHOWN = 12  # columns by name


@dataclass(frozen=True)
class LeaksInUse:
    """Columns that (may) give the label away and would be learned from.

    Attributes:
      survey: findings about the data.
      features: features of the columns.
      function: the user's preprocessing_fn, which gets all columns.
      by_survey: whether a function chooses the features from the survey.
      keep: columns that are known at prediction time.
    """

    survey: Survey
    features: Sequence[Feature]
    function: str | None
    by_survey: bool
    keep: Sequence[str]

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield a note, (subject, text), per column."""
        for column, leak in self._found():
            yield "label leak", f"{column.name} {self._words(column, leak)}"

    def check(self, data: str) -> None:
        """Check a strict run.

        Raises:
          InfeedError: columns that are not kept give the label away; the error names them.
        """
        found = [(column, leak) for column, leak in self._found() if leak.sure and column.name not in self.keep]
        if not found:
            return
        reasons = ", ".join(f"{column.name} ({leak.why})" for column, leak in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        flags = " ".join(f"--keep {quote(column.name)}" for column, _ in found[:_SHOWN])
        withheld = "; without --strict, the others are left out" if self.by_survey else ""
        raise InfeedError(
            f"{len(found):,} column{'s give' if len(found) > 1 else ' gives'} the label away: {reasons}{more}",
            where=data,
            do=f"keep the columns that are known at prediction time: {flags}{withheld}",
        )

    def _found(self) -> Iterator[tuple[ColumnSurvey, Leak]]:
        used = {column for feature in self.features for column in feature.inputs}
        for column in self._columns:
            if column.leak and (column.name in used or self.function or column.is_withheld):
                yield column, column.leak

    @property
    def _columns(self) -> Sequence[ColumnSurvey]:
        return self.survey.columns if isinstance(self.survey, TableSurvey) else ()

    def _words(self, column: ColumnSurvey, leak: Leak) -> str:
        if column.name in self.keep:
            return f"is kept: {leak.why}"
        if column.is_withheld and not self.function:
            return f"is left out: {leak.reason}; known at prediction time? keep it with --keep {quote(column.name)}"
        gives = leak.reason.removeprefix("it ") if leak.sure else f"may give the label away: {leak.why}"
        if leak.sure and column.features and self.by_survey:
            return f"{gives}; it stays because no other column is left to learn from"
        place = f"do not use it in {self.function}" if self.function else "take it out of the features"
        if self.by_survey:
            place = "leave it out: --columns names the columns to use"
        return f"{gives}; unless it is known at prediction time, {place}"
