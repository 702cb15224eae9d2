"""Versions of a pushed model below its serving folder, and the step of Kubeflow that finds the newest one.

    python -m infeed.components.trainer.versions --serving PLACE --base_model FILE

The compiler puts this step before a training with a warm start. It is never cached. Its output is a parameter, and
thus part of the Trainer's cache key, so a newly pushed base model causes a cache miss.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from infeed.components.dataset import files


def newest_version(serving: str) -> str | None:
    """Return the newest complete version below `serving`, or `serving` itself if it is a version.

    None if there is none.
    """
    if not files.exists(serving):
        return None
    versions = [name for name in files.list_folders(serving) if name.isdigit()]
    pushed = [files.join(serving, version) for version in sorted(versions, key=int, reverse=True)]
    # `infeed push` writes saved_model.pb last, so a version without it is incomplete.
    return next((folder for folder in (*pushed, serving) if files.exists(files.join(folder, "saved_model.pb"))), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the newest version, or the serving folder if there is none, to the file of an output parameter."""
    parser = argparse.ArgumentParser(description="Find the newest pushed model.")
    parser.add_argument("--serving", required=True)
    parser.add_argument("--base_model", required=True)
    given = parser.parse_args(arguments)
    path = Path(given.base_model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(newest_version(given.serving) or given.serving, encoding="utf-8")


if __name__ == "__main__":
    main()
