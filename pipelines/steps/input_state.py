"""State of a project's input: the step before the ExampleGen in a job without TFX.

    python -m infeed.pipelines.steps.input_state --project CONFIG [--data PLACE] --input_fingerprint FILE

The step is never cached. Its output is a parameter of the ExampleGen and thus part of its cache key, so changed files
miss the cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from infeed.components.dataset import files
from infeed.pipelines.config import PipelineConfig, read_resolved
from infeed.pipelines.console.exit_codes import errors
from infeed.pipelines.project.sources import of_span, open_data


def state_of(config: PipelineConfig) -> str:
    """Return a digest of the names, sizes and times of the files that ingest would read."""
    spans = config.ingest.spans
    found = of_span(config, spans.pattern_of_window(config.data)) if spans else config
    return open_data(found, sampled=True).provenance.fingerprint


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the state to the file of an output parameter."""
    parser = argparse.ArgumentParser(description="Write the state of a project's input.")
    for name in ("--project", "--input_fingerprint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--data", help="place of the files, unless a function reads the data")
    given = parser.parse_args(arguments)
    with errors(as_json=False, debug=False):
        config = read_resolved(given.project, {"data": given.data} if given.data else {})
        assert config, "the compiler writes the config"
        files.write_bytes(given.input_fingerprint, state_of(config).encode())


if __name__ == "__main__":
    main()
