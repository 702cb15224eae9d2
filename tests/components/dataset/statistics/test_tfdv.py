from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.statistics.tfdv import ProtoOptions, StatisticsRequest

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

# What TFDV writes of options that nobody has changed; `test_executor` compares it with the TFDV that is installed.
UNCHANGED = {
    "_generators": None,
    "_sample_rate": None,
    "num_top_values": 20,
    "epsilon": 0.01,
    "enable_semantic_domain_stats": False,
    "_add_default_generators": True,
    "_experimental_result_partitions": 1,
    "TYPE_NAME": "StatsOptions",
}


def asked(schema: str = "", **options: Any) -> StatisticsRequest:
    given = text_format.Parse(schema, schema_pb2.Schema()) if schema else None
    return StatisticsRequest.of(json.dumps(UNCHANGED | options), given)


def test_without_options_all_is_as_tfdv_has_it() -> None:
    assert StatisticsRequest.of(None) == asked() == StatisticsRequest(ProtoOptions())


def test_what_shapes_the_proto_is_taken_over() -> None:
    found = asked(num_top_values=3, _num_histogram_buckets=7, frequency_threshold=2, _feature_allowlist=["a", "b"])
    assert found.proto == ProtoOptions(num_top_values=3, num_histogram_buckets=7, frequency_threshold=2)
    assert found.columns == {"a", "b"}
    assert not found.beyond


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("weight_feature", "w", "stats_options.weight_feature is 'w'"),
        ("_sample_rate", 0.1, "stats_options.sample_rate is 0.1"),
        ("enable_semantic_domain_stats", True, "stats_options.enable_semantic_domain_stats is True"),
        ("_slice_sqls", ["SELECT"], r"stats_options.slice_sqls is ['SELECT']"),
        ("slicing_config_json", "{}", "stats_options.slicing_config_json is '{}'"),
        ("_add_default_generators", False, "stats_options.add_default_generators is False"),
        ("_experimental_result_partitions", 2, "stats_options.experimental_result_partitions is 2"),
        ("epsilon", 0.001, "stats_options.epsilon is 0.001, less than 0.01"),
        ("_feature_allowlist", [["a", "b"]], "stats_options.feature_allowlist holds paths"),
        ("of_a_later_version", 5, "stats_options.of_a_later_version is 5"),
    ],
)
def test_what_partials_cannot_answer_is_left_to_tfdv_with_a_reason(option: str, value: Any, why: str) -> None:
    assert asked(**{option: value}).beyond == why


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('sparse_feature { name: "s" }', "the schema has the sparse_feature 's'"),
        ('weighted_feature { name: "w" }', "the schema has the weighted_feature 'w'"),
        ('feature { name: "f" type: STRUCT }', "'f' is a struct in the schema"),
        ('feature { name: "f" natural_language_domain {} }', "'f' is natural language in the schema"),
        (
            'feature { name: "f" type: FLOAT float_domain { is_categorical: true } }',
            "the numbers of 'f' are categories in the schema",
        ),
    ],
)
def test_so_is_what_a_schema_asks_for(schema: str, why: str) -> None:
    assert asked(schema).beyond == why


def test_lift_is_for_tfdv_and_without_a_schema_there_is_none() -> None:
    assert not asked(label_feature="y").beyond
    assert "lift" in asked('feature { name: "y" }', label_feature="y").beyond


def test_a_schema_says_which_columns_are_pictures_and_which_numbers_are_categories() -> None:
    schema = """
    feature { name: "picture" type: BYTES image_domain {} }
    feature { name: "code" type: INT int_domain { is_categorical: true } }
    feature { name: "flag" type: INT bool_domain {} }
    feature { name: "age" type: INT int_domain { min: 0 } }
    """
    found = asked(schema)
    assert (found.proto.images, found.proto.categories) == ({"picture"}, {"code", "flag"})
    assert not found.beyond


def test_one_schema_is_enough() -> None:
    with pytest.raises(InfeedError, match="both the input schema and stats_options hold a schema"):
        asked('feature { name: "a" }', schema_json='{"feature": [{"name": "a"}]}')
    assert asked(schema_json='{"feature": [{"name": "a", "imageDomain": {}}]}').proto.images == {"a"}
