"""The transform graph as training and serving use it: parse, transform, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import graph_tools, tf2_utils

from infeed.components.errors import InfeedError

Features = dict[str, Any]  # name -> tensor, sparse or ragged tensor, [batch, ...]


class TransformGraph:
    """A TransformGraph artifact on disk, with the names of the label and of the examples' weights, if there are any."""

    def __init__(self, path: str, label: str, weight: str | None = None) -> None:
        self.path = path
        self.output = tft.TFTransformOutput(path)
        self.label = label
        self.not_inputs = [label] if weight is None else [label, weight]
        self.layer = self.output.transform_features_layer()
        for option, name in (("label", label), ("feed.weight", weight)):
            if name is not None and name not in self._transform_io[1]:
                raise InfeedError(
                    f"the transform graph gives no feature {name!r}",
                    where=f"option {option} of the Trainer",
                    do=f"It gives: {', '.join(sorted(self._transform_io[1]))}. Name one of those.",
                )

    @property
    def raw_spec(self) -> dict[str, Any]:
        """Parsing spec of the raw examples."""
        return self.output.raw_feature_spec()  # type: ignore[no-any-return]

    @property
    def transformed_spec(self) -> dict[str, Any]:
        """Parsing spec of materialised examples."""
        return self.output.transformed_feature_spec()  # type: ignore[no-any-return]

    @property
    def classes(self) -> tuple[str, ...]:
        """The label's classes in index order, from the vocabulary named like it; none for a regression."""
        if not self.output.vocabulary_file_by_name(self.label):
            return ()
        return tuple(word.decode("utf-8", "replace") for word in self.output.vocabulary_by_name(self.label))

    @tf.autograph.experimental.do_not_convert
    def transform(self, raw: Features) -> Features:
        """Applies the graph; features that depend on raw ones not given are left out (serving has no label)."""
        return dict(self.layer(raw))

    @cached_property
    def serving_spec(self) -> dict[str, Any]:
        """Parsing spec of the raw features that the model's inputs depend on: what a client has to send."""
        inputs, outputs = self._transform_io
        wanted = [tensor for name, tensor in outputs.items() if name not in self.not_inputs]
        # Not by control dependencies: TensorFlow ties every output to every lookup table.
        sources = graph_tools.retrieve_sources([t.op for t in _parts(wanted)], ignore_control_dependencies=True)
        needed = {name for name, tensor in inputs.items() if any(part in sources for part in _parts(tensor))}
        return {name: spec for name, spec in self.raw_spec.items() if name in needed}

    @cached_property
    def _transform_io(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Inputs and outputs of the saved function by name."""
        function = tf.saved_model.load(self.output.transform_savedmodel_dir).transform_fn
        if hasattr(function, "concrete_functions"):
            (function,) = function.concrete_functions
        graph = function.graph
        inputs = tf2_utils.get_structured_inputs_from_func_graph(graph)
        return inputs, tf.nest.pack_sequence_as(graph.structured_outputs, graph.outputs, expand_composites=True)


def _parts(value: Any) -> list[tf.Tensor]:
    """The tensors that sparse and ragged ones are made of."""
    return tf.nest.flatten(value, expand_composites=True)  # type: ignore[no-any-return]
