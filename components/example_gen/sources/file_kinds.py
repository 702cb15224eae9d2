"""Recognition of a file by its content, with the command that reads it.

Readers of text call `check_text` and the checks of JSON before they parse rows. Readers of other formats call `not_a`
after a failure, so that the error describes the file.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files

HEAD_BYTES = 1 << 12  # bytes from the start of a file that the checks look at
_SLACK = 32  # bytes: a byte order mark, or a token that the end of the head cuts off
_SQLITE = "DB=sqlite:///{path} infeed ingest TABLE OUTPUT --format sql --set connection_env=DB"
_INGEST = "infeed ingest {path} OUTPUT --format {format}"
UNPACK = "extract it. CSV, JSON Lines, and text files may be compressed with gzip or zstd"
TO_PARQUET = "convert it to Parquet, for example by pandas' to_parquet, or to CSV"
_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class FileKind:
    """A kind of file that is not text.

    Attributes:
      name: noun phrase for errors.
      start: first bytes.
      end: last bytes, for kinds whose first bytes may start a text.
      format: format that reads the file. Empty if none does.
      do: remedy if no format reads the file.
    """

    name: str
    start: bytes
    end: bytes = b""
    format: str = ""
    do: str = ""

    def remedy(self, path: str) -> str:
        return f"read it with {_command(self.format, path)}" if self.format else self.do


KINDS = (
    FileKind("an SQLite database", b"SQLite format 3\0", format="sql"),
    FileKind("a Parquet file", b"PAR1", end=b"PAR1", format="parquet"),
    FileKind("an Avro file", b"Obj\x01", format="avro"),
    FileKind("an Arrow file", b"ARROW1\0\0", format="arrow"),
    FileKind("an ORC file", b"ORC", end=b"ORC", do=TO_PARQUET),
    FileKind("a ZIP archive or an Excel workbook (.xlsx)", b"PK\x03\x04", do="extract it, or save the workbook as CSV"),
    FileKind("an Excel workbook (.xls)", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", do="save it as CSV"),
    FileKind("a bzip2 archive", b"BZh91AY&SY", do=UNPACK),
    FileKind("an xz archive", b"\xfd7zXZ\0", do=UNPACK),
    FileKind("a PNG image", b"\x89PNG\r\n\x1a\n", format="images"),
    FileKind("a JPEG image", b"\xff\xd8\xff", format="images"),
    FileKind("a PDF document", b"%PDF-", do="extract its tables or its text first"),
)
_DECOMPRESS = "decompress it, or set its format if it contains CSV, JSON Lines, or text"
_COMPRESSED = (  # readers of text decompress these
    FileKind("a gzip file", b"\x1f\x8b", do=_DECOMPRESS),
    FileKind("a zstd file", b"\x28\xb5\x2f\xfd", do=_DECOMPRESS),
)
BY_LIBRARY = "read it with its library in a function, and use infeed ingest --reader MODULE:FUNCTION (docs/sources.md)"
_LOGS = {"_delta_log/*.json": "a Delta Lake table", "metadata/*.metadata.json": "an Iceberg table"}
_AGAIN = "write the file again, or remove it"


class NotTextError(InfeedError):
    """A file that should hold text is of another kind."""


def check_text(path: str, head: bytes, *, is_compressed: bool = False) -> None:
    """Raise NotTextError if the file that starts with `head`, decompressed, is known not to be text."""
    if kind := _kind_of(path, head, KINDS):
        do = "decompress it, and set its format" if is_compressed else kind.remedy(path)
        raise NotTextError(f"this is {kind.name}, not text", where=path, do=do)


def check_table(path: str, head: bytes) -> None:
    """Raise InfeedError if a CSV file holds JSON."""
    first = head.lstrip().partition(b"\n")[0].rstrip()
    if first in (b"[", b"{") or first.startswith(b"[{") or isinstance(_parse(first), dict):
        is_lines = isinstance(_parse(first), dict)
        do = f"read it with {_command('jsonl', path)}" if is_lines else _as_lines(path, is_array=first[:1] == b"[")
        raise InfeedError(f"this is JSON{' Lines' if is_lines else ''}, not CSV", where=path, do=do)


def check_lines(path: str, head: bytes) -> None:
    """Raise InfeedError if a JSON Lines file is one JSON document over several lines, one array, or not JSON."""
    text = head.strip()
    first, _, rest = (part.strip() for part in text.partition(b"\n"))
    if not first or first.startswith(_OTHER_ENCODINGS) or isinstance(_parse(first), dict):
        return
    if first == b"[" or first.startswith(b"[{") or (first[:1] == b"[" and not rest):
        what = "this is one JSON array, not one object per line"
        raise InfeedError(what, where=path, do=_as_lines(path, is_array=True))
    if first[:1] == b"{" and rest and _spans_lines(text, first, is_whole=len(head) < HEAD_BYTES - _SLACK):
        what = "this is one JSON object over several lines, not one object per line"
        raise InfeedError(what, where=path, do=_as_lines(path, is_array=False))
    if not any(line.lstrip().startswith((b"{", b"[")) for line in text.split(b"\n")) and _is_printable(head):
        do = f"if it is a CSV file, read it with {_command('csv', path)}"
        raise InfeedError("no line is a JSON object", where=path, do=do)


def check_no_table(source: str) -> None:
    """Raise InfeedError for folders of tables such as Delta Lake, whose log determines which files are valid."""
    for log, table in _LOGS.items() if files.is_folder(source) else ():
        if files.glob(source, log):
            raise InfeedError(f"this is {table}, whose log lists the valid files", where=source, do=BY_LIBRARY)


def kind_of(path: str) -> FileKind | None:
    """Return the kind of a file, or None if it may be text."""
    return _kind_of(path, _head(path), KINDS)


def not_a(form: str, path: str, reason: str) -> InfeedError:
    """Return the error of a reader that could not open a file as `form`: the kind of the file, or `reason`."""
    head = _head(path)
    others = [kind for kind in (*KINDS, *_COMPRESSED) if kind.format != form.lower()]
    if kind := _kind_of(path, head, others):
        return InfeedError(f"this is {kind.name}, not {form}", where=path, do=kind.remedy(path))
    if head and _is_printable(head):
        format = "jsonl" if isinstance(_parse(head.partition(b"\n")[0]), dict) else "csv"
        do = f"if it is a table, read it with {_command(format, path)}"
        return InfeedError(f"this is text, not {form}", where=path, do=do)
    return InfeedError(f"not {form}, or truncated: {reason}", where=path, do=_AGAIN)


def _head(path: str) -> bytes:
    with files.open_input(path) as file:
        return bytes(file.read(HEAD_BYTES))


def _kind_of(path: str, head: bytes, kinds: Iterable[FileKind]) -> FileKind | None:
    for kind in (one for one in kinds if head.startswith(one.start)):
        if not kind.end:
            return kind
        with files.open_input(path) as file:
            file.seek(max(file.size() - len(kind.end), 0))
            if file.read() == kind.end:
                return kind
    return None


def _command(format: str, path: str) -> str:
    return (_SQLITE if format == "sql" else _INGEST).format(path=shlex.quote(path), format=format)


def _as_lines(path: str, *, is_array: bool) -> str:
    quoted, lines = shlex.quote(path), shlex.quote(f"{path.removesuffix('.json')}.jsonl")
    return f"write a line for each object: jq -c {repr('.[]') if is_array else '.'} {quoted} > {lines}"


def _parse(text: bytes) -> object:
    """Return the value of a JSON text, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _spans_lines(text: bytes, first: bytes, *, is_whole: bool) -> bool:
    """Return whether the JSON value at the start of `text` continues after its first line.

    If the text is incomplete, a value that its end cuts off counts, too.
    """
    decoded = text.decode(errors="replace")
    try:
        return json.JSONDecoder().raw_decode(decoded)[1] > len(first.decode(errors="replace"))
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(decoded) - _SLACK or error.msg.startswith("Unterminated")
        return is_cut and not is_whole
    except (ValueError, RecursionError):
        return False


def _is_printable(head: bytes) -> bool:
    text = head.decode("utf-8", "ignore")
    return len(text.encode()) > len(head) - 4 and all(sign.isprintable() or sign in "\t\r\n" for sign in text)
