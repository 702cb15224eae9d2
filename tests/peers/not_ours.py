"""Tests of tft and TFX that this package fails or does not concern: module -> pattern of names -> reason."""

from __future__ import annotations

_BEAM = "it builds its own Beam pipeline of tft"
_METRICS = "it counts Beam's metrics, and our engine runs no Beam pipeline"
_STAGES = "all spans are cached, since the limit of stages is Beam's"
_CHANGED = ("int16", "int32", "int64", "tf.float64", "tf.uint16", "tf.uint8")
_OWN_PIPELINES = (
    "test3dSparseWithTFXIO",
    "testAssertsNoReturnPyFunc",
    "testHandleBatchError",
    "testNumBytesCounter",
    "testPassthroughKeys",
    "testPipelineAPICounters",
    "testPipelineWithoutAutomaterialization",
    "testTransformWithExcludedOutputs",
)
_TFT, _TFX = "tensorflow_transform.beam", "tfx.components"

# Not run, since they call no executor.
ELSEWHERE = {
    f"{_TFT}.impl_test": {
        **dict.fromkeys(_OWN_PIPELINES, _BEAM),
        "testRaggedWithTFXIO": "its rows are RecordBatches of lists of lists, which no tf.Example holds",
    },
    f"{_TFT}.vocabulary_integration_test": {
        "testVocabularyAnnotations": _BEAM,
        "testVocabularyWithFrequency": _BEAM,
        "testVocabularyWithKeyFnAndFrequency": _BEAM,
    },
}

# Run, and expected to fail.
FAILS = {
    f"{_TFT}.impl_test": {
        **dict.fromkeys(
            [f"testNumericAnalyzersWithCompositeInputssparse_elementwise_{kind}" for kind in _CHANGED],
            "it fails on Beam, too: its body changes parameters that the tests of all types share",
        ),
        "testEmptySchema": "the error has other words",
        "test_preprocessing_fn_returns_wrong_type": "the error has other words",
    },
    f"{_TFX}.example_gen.csv_example_gen.executor_test": {
        "testCsvToExampleMultiLineString": "it takes the second row, and ours are shuffled; the values are the same",
    },
    f"{_TFX}.example_gen.import_example_gen.executor_test": {
        "testDoWithParquet": "FORMAT_PARQUET is refused, as drop-in.md says",
    },
    f"{_TFX}.transform.executor_v2_test": {
        "test_counters": _METRICS,
        "test_do_with_cache_*_1st_input_cache": _METRICS,
        "test_do_with_cache_disabled_too_many_stages": _STAGES,
        "test_do_with_partial_cache": _STAGES,
        "test_do_with_duplicate_preprocessing_fn": "the component refuses both, before its executor starts",
    },
    f"{_TFX}.statistics_gen.executor_test": {
        "testDoWithSchemaAndStatsOptions": "TFDV's ComputeLifts fails under this Beam, in TFX's own executor, too",
    },
}
