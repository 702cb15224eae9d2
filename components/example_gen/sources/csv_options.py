"""How CSV files are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infeed.components.dataset.manifest import ColumnType
from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources.streams import check_encoding

_NO_SIGN = '"\r\n'


@dataclass(frozen=True)
class CsvOptions:
    """How the files are written; compression (gzip, zstd) is told from their content.

    Args:
      delimiter: one ASCII character.
      quote: the character around cells that hold delimiters or line breaks, doubled inside them; None where quotes are
        text like any other.
      header: whether the first line holds names.
      names: of the columns, in order; needed where there is no header line, instead of it where there is one.
      nulls: cells that mean "no value".
      types: "int", "float" or "bytes" for some columns; those of the others are found over the whole input.
      encoding: any that Python knows. A file that is not UTF-8 is read by one worker.
    """

    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True
    names: tuple[str, ...] | None = None
    nulls: tuple[str, ...] = ("",)
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        for name in ("names", "nulls"):
            if isinstance(getattr(self, name), str):  # whose letters would be taken one by one
                raise _error(f"{name}={getattr(self, name)!r}", f'give several, such as {name}=("NA", "-")')
        object.__setattr__(self, "names", None if self.names is None else tuple(self.names))  # a list, from JSON
        object.__setattr__(self, "nulls", tuple(self.nulls))
        if not _is_sign(self.delimiter) or self.delimiter in _NO_SIGN:
            raise _error(f"delimiter={self.delimiter!r}", "give one character, such as ';'")
        if self.quote is not None and (not _is_sign(self.quote) or self.quote in f"{self.delimiter}\r\n"):
            raise _error(f"quote={self.quote!r}", "give one character other than the delimiter, or None")
        if not self.header and not self.names:
            raise _error("no header line and no names", "give names=")
        unknown = sorted(name for name, kind in self.types.items() if kind not in ("int", "float", "bytes"))
        if unknown:
            raise _error(f"types[{unknown[0]!r}]={self.types[unknown[0]]!r}", 'give "int", "float" or "bytes"')
        check_encoding(self.encoding, "CsvOptions")


def _is_sign(text: str) -> bool:
    return len(text) == 1 and text.isascii()


def _error(what: str, do: str) -> InfeedError:
    return InfeedError(what, where="CsvOptions", do=do)
