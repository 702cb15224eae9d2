"""Versions of a pushed model below its serving folder."""

from __future__ import annotations

from infeed.components.dataset import files


def newest_version(serving: str) -> str | None:
    """Return the folder of the newest complete version below `serving`; None if nothing has been pushed."""
    versions = [name for name in files.list_folders(serving) if name.isdigit()] if files.exists(serving) else []
    pushed = [files.join(serving, version) for version in sorted(versions, key=int, reverse=True)]
    # `infeed push` writes saved_model.pb last: a version without it is unfinished.
    return next((folder for folder in pushed if files.exists(files.join(folder, "saved_model.pb"))), None)
