"""State of an ExampleGen's input on Kubeflow, whose backend runs no drivers: files, span and fingerprint.

    python -m infeed.components.kubeflow.input_state --input-base PLACE --config JSON --span FILE ...

The compiler puts this step before each file-based ExampleGen. It is never cached and takes about a second. Its outputs
are parameters of the ExampleGen and thus part of its cache key, so changed files miss the cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from infeed.components.dataset import files

_PLACEHOLDERS = ("{SPAN", "{YYYY}", "{MM}", "{DD}", "{VERSION")


class InputState(NamedTuple):
    """Span and fingerprint of an input, as TFX's driver computes them."""

    input_config: str  # the Input proto as JSON, with span and version filled into the patterns
    input_fingerprint: str  # digest of names, sizes and times of the files
    span: int  # 0 if there are no spans


OUTPUTS = InputState._fields


def state_of(input_base: str, input_config: str, range_config: str = "") -> InputState:
    """Return the state of an input. Both configs are protos as JSON; the range may be empty.

    Raise InfeedError if the folder cannot be read; ValueError if patterns contradict one another or no span fits them.
    """
    span, resolved = 0, input_config
    patterns = [split["pattern"] for split in json.loads(input_config).get("splits", [])]
    if range_config or any(sign in pattern for pattern in patterns for sign in _PLACEHOLDERS):
        span, resolved = _with_span(input_base, input_config, range_config)
        patterns = [split["pattern"] for split in json.loads(resolved)["splits"]]
    return InputState(resolved, fingerprint(input_base, patterns or ["*"]), span)


def fingerprint(input_base: str, patterns: Iterable[str]) -> str:
    """Return a digest of the names, sizes and modification times of all files that match the patterns."""
    digest = hashlib.sha256()
    for pattern in patterns:
        digest.update(f"{pattern}\n".encode())
        for file in files.glob(input_base, pattern):
            digest.update(f"{files.relative(file.path, input_base)} {file.size} {file.mtime_ns}\n".encode())
    return digest.hexdigest()


def _with_span(input_base: str, input_config: str, range_config: str) -> tuple[int, str]:
    """Return the span, and the input config with the patterns of this span, by TFX's rules."""
    from tfx.components.example_gen.input_processor import FileBasedInputProcessor
    from tfx.proto import example_gen_pb2, range_config_pb2
    from tfx.utils import proto_utils

    from infeed.components.kubeflow import tfx_filesystem

    tfx_filesystem.register()
    config: Any = proto_utils.json_to_proto(input_config, example_gen_pb2.Input())
    chosen = proto_utils.json_to_proto(range_config, range_config_pb2.RangeConfig()) if range_config else None
    processor = FileBasedInputProcessor(input_base, config.splits, chosen)
    span, version = processor.resolve_span_and_version()
    for split in config.splits:
        split.pattern = processor.get_pattern_for_span_version(split.pattern, span, version)
    return span, proto_utils.proto_to_json(config)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write each field of the state to the file of its output parameter."""
    parser = argparse.ArgumentParser(description="Write the state of an ExampleGen's input.")
    parser.add_argument("--input-base", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--range-config", default="")
    for name in OUTPUTS:
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args(arguments)
    state = state_of(given.input_base, given.config, given.range_config)
    for name in OUTPUTS:
        files.write_bytes(getattr(given, name), str(getattr(state, name)).encode())


if __name__ == "__main__":
    main()
