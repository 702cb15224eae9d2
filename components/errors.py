"""The one error a user is meant to read: what was wrong, where, and what to do about it."""

from __future__ import annotations


class InfeedError(Exception):
    """Bad input, bad options or a machine that cannot do what was asked; never a bug of ours.

    The command line prints it without a traceback and exits with code 2.

    Args:
      what: what was wrong, with the offending value.
      where: file, row, column, split or option it was found in; empty where that is plain from `what`.
      do: what the user can do about it.
    """

    def __init__(self, what: str, *, where: str = "", do: str) -> None:
        self.what = what
        self.where = where
        self.do = do
        lines = [what, f"  where: {where}" if where else "", f"  do:    {do}"]
        super().__init__("\n".join(line for line in lines if line))

    def __reduce__(self) -> tuple[object, ...]:
        # Beam and multiprocessing pickle exceptions; keyword-only arguments need help with that.
        return (_rebuild, (self.what, self.where, self.do))


def _rebuild(what: str, where: str, do: str) -> InfeedError:
    return InfeedError(what, where=where, do=do)
