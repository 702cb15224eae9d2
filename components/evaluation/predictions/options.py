"""What to ask a model, and what becomes of its answers: one frozen object, checked when built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infeed.components.checks import as_tuples, at_least, check_choices, refused, require

OutputFormat = Literal["parquet", "tfrecord", "examples", "prediction_log"]
_WHOLE = ("examples", "prediction_log")  # formats that hold the whole example


@dataclass(frozen=True)
class PredictOptions:
    """How predictions are made and written.

    Attributes:
      signature: of the model.
      keys: columns of the examples that say which row it is; they come first.
      columns: further columns of the examples that go along, behind the keys.
      output_format: "parquet" with a column for each key, column and output; "tfrecord" of tf.Examples with the same,
        outputs of several dimensions end to end; "examples" are the examples with the outputs as further features;
        "prediction_log" is the proto that TFX's BulkInferrer writes, with the whole example and all outputs.
      outputs: column -> the output of the model that is written there; empty for all, each called as in the model.
      batch_size: the model is asked about so many rows at a time, and fewer where they are more than 4 MiB.
      splits: of the examples; None for all.
      tags: of the graph in the saved model; none where it holds only one.
    """

    signature: str = "serving_default"
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    output_format: OutputFormat = "parquet"
    outputs: Mapping[str, str] = field(default_factory=dict)
    batch_size: int = 1024
    splits: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        as_tuples(self, "keys", "columns", "splits", "tags")
        for name in ("keys", "columns", "splits", "tags"):
            require(not isinstance(getattr(self, name), str), self, name, "give a list of names")
        check_choices(self)
        at_least(self, 1, "batch_size")
        require(self.signature, self, "signature", "name one, such as serving_default")
        require(self.splits is None or self.splits, self, "splits", "name one or more, or leave it None for all")
        repeated = [name for name in self.carried if self.carried.count(name) > 1]
        if repeated:
            what = f"column {repeated[0]!r} is named twice"
            raise refused(self, "columns", "name each once, in keys or in columns", what)
        if self.carried and self.output_format in _WHOLE:
            what = f"keys and columns are given, and {self.output_format} holds the whole example"
            raise refused(self, "output_format", "leave them out, or write parquet or tfrecord", what)
        if self.outputs and self.output_format == "prediction_log":
            what = "outputs are given, and a prediction_log holds all of them"
            raise refused(self, "outputs", "leave them out, or write another format", what)

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of the examples that go along, in order."""
        return (*self.keys, *self.columns)
