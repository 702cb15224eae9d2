"""TensorFlow Transform: functions of tft's Beam implementation, for analyses on our engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from infeed.components.seams.seam import Seam, listed

_TFT = "tensorflow_transform"
_VERSIONS = ("1.16.0", "1.21.0")
ANALYSIS = Seam(
    "tensorflow-transform",
    "analysis of a preprocessing_fn on our engine",
    (
        f"{_TFT}.beam.analyzer_impls:_calculate_mutual_information_for_feature_value(feature_and_accumulator, "
        "global_accumulator, use_adjusted_mutual_info, min_diff_from_avg)",
        f"{_TFT}.beam.analyzer_impls:_flatten_to_key_and_means_accumulator_list(batch_values, compute_weighted)",
        f"{_TFT}.beam.analyzer_impls:_join_boundary_rows(boundary_matrix)",
        f"{_TFT}.beam.analyzer_impls:_merge_outputs_by_key(keys_and_outputs, outputs_dtype)",
        f"{_TFT}.beam.analyzer_impls:_split_inputs_by_key(batch_values)",
        f"{_TFT}.beam.analyzer_impls:_WeightedMeanCombineFn(output_shape, compute_weighted)",
        f"{_TFT}.impl_helper:_validate_analyzers_fingerprint(baseline_analyzers_fingerprint, graph, structured_inputs)",
        f"{_TFT}.saved.saved_transform_io_v2:optimize_concrete_function(concrete_function, strip_control_dependencies)",
        f"{_TFT}.saved.saved_transform_io_v2:trace_and_update_module(module, tf_function, name, "
        "strip_control_dependencies)",
        f"{_TFT}.schema_inference:_get_schema_overrides(graph, tensor_name_to_key_map, tensor_collection_key, "
        "overrides_keys, default_tensor_name)",
        f"{_TFT}.schema_inference:_get_sparse_output_annotations_v2(graph, tensor_to_feature_names)",
        f"{_TFT}.schema_inference:_get_tensor_value_to_key_map(features_dict)",
        f"{_TFT}.tf_utils:_reduce_batch_count_mean_and_var_sparse(x)",
        *listed(
            {
                f"{_TFT}.analyzers": (
                    "_VocabOrderingType.FREQUENCY _VocabOrderingType.MUTUAL_INFORMATION "
                    "_VocabOrderingType.WEIGHTED_FREQUENCY _VocabOrderingType.WEIGHTED_MUTUAL_INFORMATION "
                    "calculate_recommended_min_diff_from_avg"
                ),
                f"{_TFT}.analyzer_nodes": "TENSOR_REPLACEMENTS",
                f"{_TFT}.annotators": "clear_asset_annotations get_asset_annotations",
                f"{_TFT}.beam.analysis_graph_builder": "build",
                f"{_TFT}.beam.analyzer_cache": "DatasetCache",
                f"{_TFT}.beam.beam_nodes": "CreateSavedModel",
                f"{_TFT}.beam.common": "get_unique_temp_path",
                f"{_TFT}.graph_context": "TFGraphContext",
                f"{_TFT}.graph_tools": "SourcedTensorsVisitor get_analyzers_fingerprint get_dependent_inputs",
                f"{_TFT}.impl_helper": "get_traced_transform_fn",
                f"{_TFT}.nodes": "Traverser Visitor",
                f"{_TFT}.saved.saved_transform_io_v2": "SavedModelLoader",
                f"{_TFT}.schema_inference": (
                    "_TF_METADATA_EXTRA_ANNOTATION _TF_METADATA_EXTRA_ANNOTATION_GLOBAL "
                    "_TF_METADATA_EXTRA_ANNOTATION_PROTO _TF_METADATA_EXTRA_ANNOTATION_TYPE_URL "
                    "_TF_METADATA_TENSOR_COLLECTION _TF_METADATA_TENSOR_MAX_COLLECTION "
                    "_TF_METADATA_TENSOR_MIN_COLLECTION _METADATA_SPARSE_OUTPUT_OVERRIDES_FIELD "
                    "get_traced_metadata_fn infer_feature_schema_v2"
                ),
                f"{_TFT}.tf2_utils": (
                    "get_structured_inputs_from_func_graph strip_and_get_tensors_and_control_dependencies "
                    "supply_missing_inputs"
                ),
                f"{_TFT}.tf_metadata.metadata_io": "write_metadata",
                f"{_TFT}.tf_utils": (
                    "GLOBAL_Y_COUNT_SENTINEL_INT GLOBAL_Y_COUNT_SENTINEL_STRING fetch_vocabulary_reserved_tokens"
                ),
            }
        ),
    ),
    _VERSIONS,
    "tft analyzes and transforms on Beam, in TFX's own executor",
)


def rows_by_key(values: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Yield (key, row) for the rows of a batch whose first array holds the keys."""
    from tensorflow_transform.beam import analyzer_impls

    return analyzer_impls._split_inputs_by_key(values)  # type: ignore[no-any-return]


def outputs_by_tag(results: Iterable[tuple[Any, Any]], dtypes: Sequence[Any]) -> dict[str, Any]:
    """Return the keys (tag `key`) and each output of a combiner (tags `0`, `1`, ...) as arrays over all keys."""
    from tensorflow_transform.beam import analyzer_impls

    return {output.tag: output.value for output in analyzer_impls._merge_outputs_by_key(results, dtypes)}


def joined_boundaries(boundaries: Any) -> tuple[Any, ...]:
    """Return the bucket boundaries of all keys as one list, with scale and shift of each key."""
    from tensorflow_transform.beam import analyzer_impls

    return analyzer_impls._join_boundary_rows(boundaries)  # type: ignore[no-any-return]


def vocabulary_order(ordering: int) -> str:
    """Return the order of a vocabulary: `frequency` or `mutual_information`, also `weighted_`; empty if unknown."""
    from tensorflow_transform import analyzers

    kinds = vars(analyzers._VocabOrderingType).items()
    name = next((name.lower() for name, value in kinds if value == ordering and name.isupper()), "")
    return name if name.removeprefix("weighted_") in ("frequency", "mutual_information") else ""


def label_means(values: Sequence[Any], *, weighted: bool) -> Iterable[tuple[Any, Any]]:
    """Yield (token, counts and label means) for a batch of tokens."""
    from tensorflow_transform.beam import analyzer_impls

    return analyzer_impls._flatten_to_key_and_means_accumulator_list(values, weighted)  # type: ignore[no-any-return]


def label_means_combiner(*, weighted: bool) -> Any:
    """Return the combiner for the values of `label_means`."""
    from tensorflow_transform.beam import analyzer_impls

    return analyzer_impls._WeightedMeanCombineFn(output_shape=(None,), compute_weighted=weighted)


def mutual_information(token: Any, means: Any, overall: Any, *, adjusted: bool, least: float) -> tuple[float, float]:
    """Return the mutual information of a token with the label, and the token's frequency."""
    from tensorflow_transform.beam import analyzer_impls

    _, (information, _, frequency) = analyzer_impls._calculate_mutual_information_for_feature_value(
        (token, means), overall, use_adjusted_mutual_info=adjusted, min_diff_from_avg=least
    )
    return information, frequency


def empty_vocabulary_entry(dtype: str) -> Any:
    """Return the entry of a vocabulary without tokens, since TensorFlow's tables must not be empty."""
    from tensorflow_transform import analyzers

    # tft misspells the name in the listed versions.
    misspelled = getattr(analyzers, "get_empy_vocabulary_dummy_value", None)
    return (misspelled or analyzers.get_empty_vocabulary_dummy_value)(dtype)


def is_unsized_feature(error: ValueError) -> bool:
    """Report whether tft refused a feature because a dimension has no size."""
    return "all dimensions must have known size" in str(error)


def traced(function: Any, owner: Any, name: str) -> Any:
    """Trace a tf.function for a SavedModel, and return the concrete function.

    `owner` is the module that holds the tables, variables and assets. Its attribute `name` computes nothing. The caller
    sets it to a function of `part_of`, because tft would copy the whole graph.
    """
    from tensorflow_transform.saved import saved_transform_io_v2

    made = []

    def without_outputs() -> Any:
        with _sparse_variance_of_finite_values():
            made.append(function.get_concrete_function())
        graph = made[0].graph
        return SimpleNamespace(
            graph=graph, inputs=(), structured_outputs={}, outputs=(), structured_input_signature=((), {})
        )

    tracer = SimpleNamespace(get_concrete_function=without_outputs)
    saved_transform_io_v2.trace_and_update_module(owner, tracer, name, False)
    return made[0]


@contextmanager
def _sparse_variance_of_finite_values() -> Iterator[None]:
    """Exclude non-finite values from elementwise variances of sparse tensors, as tft does for dense tensors.

    For sparse tensors, tft counts them as zeros, which makes the variance depend on the batches.
    """
    import tensorflow as tf
    from tensorflow_transform import tf_utils

    reduce = tf_utils._reduce_batch_count_mean_and_var_sparse

    def reduce_finite(x: Any) -> Any:
        return reduce(tf.sparse.retain(x, tf.math.is_finite(x.values)) if x.dtype.is_floating else x)

    tf_utils._reduce_batch_count_mean_and_var_sparse = reduce_finite
    try:
        yield
    finally:
        tf_utils._reduce_batch_count_mean_and_var_sparse = reduce


def part_of(graph: Any, outputs: Any, inputs: Sequence[Any] = (), signature: Any = ((), {})) -> Any:
    """Return a function of the part of a FuncGraph that computes `outputs`, as tft saves functions."""
    import tensorflow as tf
    from tensorflow_transform.saved import saved_transform_io_v2

    whole = SimpleNamespace(
        graph=graph,
        inputs=inputs,
        structured_outputs=outputs,
        outputs=tf.nest.flatten(outputs, expand_composites=True),
        structured_input_signature=signature,
    )
    return saved_transform_io_v2.optimize_concrete_function(whole, False)


def check_fingerprint(first: Any, graph: Any) -> None:
    """Raise RuntimeError if a graph does not have the analyzers that a fingerprint describes."""
    from tensorflow_transform import impl_helper, tf2_utils

    inputs = tf2_utils.get_structured_inputs_from_func_graph(graph)
    impl_helper._validate_analyzers_fingerprint(first, graph, inputs)


def annotations_of(graph: Any, features: Any, *, final: bool) -> Callable[[], Mapping[str, Any]] | None:
    """Return a function with the result of tft's `metadata_fn`: annotations of features.

    tft would trace the preprocessing function once more. Before the results of all analyzers are known (not `final`),
    the function returns only names of features. Return None if some annotations depend on columns.
    """
    import tensorflow as tf
    from tensorflow_transform import graph_tools, schema_inference, tf2_utils

    flat = tf.nest.flatten(features, expand_composites=True)
    own, _ = tf2_utils.strip_and_get_tensors_and_control_dependencies(flat)  # the tensors that the user annotated
    by_name = schema_inference._get_tensor_value_to_key_map(tf.nest.pack_sequence_as(features, own, True))
    ranges = schema_inference._TF_METADATA_TENSOR_COLLECTION
    limits = [schema_inference._TF_METADATA_TENSOR_MIN_COLLECTION, schema_inference._TF_METADATA_TENSOR_MAX_COLLECTION]
    protos = [
        schema_inference._TF_METADATA_EXTRA_ANNOTATION_TYPE_URL,
        schema_inference._TF_METADATA_EXTRA_ANNOTATION_PROTO,
    ]
    overrides = functools.partial(schema_inference._get_schema_overrides, graph, by_name)
    if not final:
        named = [by_name[one.name] for one in graph.get_collection(ranges) if one.name in by_name]
        return lambda: {ranges: list(map(tf.constant, named))}
    with graph.as_default():
        found = {
            **overrides(ranges, limits),
            **overrides(
                schema_inference._TF_METADATA_EXTRA_ANNOTATION,
                protos,
                schema_inference._TF_METADATA_EXTRA_ANNOTATION_GLOBAL,
            ),
            schema_inference._METADATA_SPARSE_OUTPUT_OVERRIDES_FIELD: [
                schema_inference._get_sparse_output_annotations_v2(graph, by_name)
            ],
        }
        found = tf.nest.map_structure(tf.convert_to_tensor, found)
    inputs = tf2_utils.get_structured_inputs_from_func_graph(graph)
    if graph_tools.get_dependent_inputs(graph, inputs, tf.nest.flatten(found)):
        return None
    return part_of(graph, found)  # type: ignore[no-any-return]


def saved_model_in(loader: Any) -> Any:
    """Return the SavedModel that a `SavedModelLoader` has loaded, with its tables, assets and variables."""
    return next(value for value in vars(loader).values() if hasattr(value, "signatures"))
