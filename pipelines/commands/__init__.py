"""Commands of `infeed`, one per file: each parses arguments, calls plain functions and prints the result."""
