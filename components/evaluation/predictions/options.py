"""Options of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infeed.components.base.checks import as_tuples, at_least, check_fields, refused, require

OutputFormat = Literal["parquet", "tfrecord", "examples", "prediction_log"]


@dataclass(frozen=True)
class PredictOptions:
    """Options of predictions.

    Attributes:
      signature: signature of the model to call.
      keys: columns of the examples that identify rows. They come first.
      columns: additional columns of the examples to copy, after the keys.
      output_format: "parquet" has a column for each key, column and output. "tfrecord" has tf.Examples with the same
          columns, with multidimensional outputs flattened. "examples" are the examples with the outputs as additional
          features. "prediction_log" is the proto of TFX's BulkInferrer, with the whole example and all outputs.
      outputs: column -> output of the model. Empty for all outputs under their own names.
      batch_size: maximum number of rows of a batch. A batch is also limited to 4 MiB.
      splits: splits of the examples. None for all.
      tags: tags of the graph in the saved model. Empty if it has only one graph.
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
            require(not isinstance(getattr(self, name), str), self, name, "use a list of names")
        check_fields(self)
        at_least(self, 1, "batch_size")
        require(self.signature, self, "signature", "use a name such as serving_default")
        require(self.splits is None or self.splits, self, "splits", "use one or more names, or None for all")
        repeated = [name for name in self.carried if self.carried.count(name) > 1]
        if repeated:
            what = f"column {repeated[0]!r} occurs twice"
            raise refused(self, "columns", "use each column once, in keys or in columns", what)
        if self.carried and self.output_format in ("examples", "prediction_log"):
            what = f"keys or columns are set, but {self.output_format} contains the whole example"
            raise refused(self, "output_format", "leave them out, or write parquet or tfrecord", what)
        if self.outputs and self.output_format == "prediction_log":
            what = "outputs is set, but prediction_log contains all outputs"
            raise refused(self, "outputs", "leave them out, or write another format", what)

    @property
    def carried(self) -> tuple[str, ...]:
        """Return the columns of the examples to copy, in order."""
        return (*self.keys, *self.columns)
