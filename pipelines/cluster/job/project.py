"""Archive of the user's project: beside the job file after `compile`, and in the store for the steps."""

from __future__ import annotations

from pathlib import Path

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine.project_archive import SUFFIX, digest
from infeed.pipelines.cluster.job.compiled import CompiledJob


def archive_beside(job_file: str) -> Path:
    """Return the path of the archive that belongs to a job file: taxi.project.tar.gz for taxi.json."""
    return Path(job_file).with_suffix(f".project{SUFFIX}")


def publish(job: CompiledJob) -> None:
    """Upload the archive of the project to the URI in the job, unless the object exists.

    Raises InfeedError if the archive beside the job file is missing or from another compilation, or the upload fails.
    """
    place = job.project_archive
    try:
        if place and not files.exists(place):
            archive, do = archive_beside(job.file), "compile the job again: infeed compile writes both files"
            if not archive.is_file():
                raise InfeedError(f"the archive of the project, {archive}, is missing", where=job.file, do=do)
            content = archive.read_bytes()
            if f"{digest(content)}{SUFFIX}" != files.name(place):
                raise InfeedError(f"{archive} belongs to another compilation of the job", where=job.file, do=do)
            files.write_bytes(place, content)
    except InfeedError as error:
        # Errors about the archive beside the job file are clear as they are.
        if error.where != place:
            raise
        do = "check that this machine reaches the store, and its credentials there"
        raise InfeedError(f"cannot upload the project: {error.what}", where=place, do=do) from error
