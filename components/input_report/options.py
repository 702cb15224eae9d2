"""What a pipeline author may ask of InputReport."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.components.errors import InfeedError


@dataclass(frozen=True)
class ReportOptions:
    """How strict the report is.

    Attributes:
      max_wait_fraction: largest share of training time, 0 to 1, that training may wait for input and still be blessed;
        None leaves the blessing out.
    """

    max_wait_fraction: float | None = None

    def __post_init__(self) -> None:
        limit = self.max_wait_fraction
        if limit is not None and not 0 <= limit <= 1:
            raise InfeedError(
                f"max_wait_fraction is {limit}",
                where="InputReport",
                do="Give a share between 0 and 1, such as 0.1 for a tenth of the training time.",
            )
