"""What goes out as plain data comes back equal, for every class of options that there is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.base import schema
from infeed.components.base.annotations import hints_of
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import Balance, IngestOptions, ShardOptions, Spans
from infeed.components.dataset.splits import ByColumns, ByLabel, ByName, ByRecord, ByTime
from infeed.components.example_gen.sources.bigquery import BigQueryOptions
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.folders import TextOptions
from infeed.components.example_gen.sources.image_codec import ImageOptions
from infeed.components.example_gen.sources.jsonl import JsonlOptions
from infeed.components.example_gen.sources.parquet import ParquetOptions
from infeed.components.example_gen.sources.sql_reader import SqlOptions
from infeed.components.feed.options import Augment, FeedOptions, MapFunction, Normalise
from infeed.components.kubeflow.training_job import TrainingJob
from infeed.components.trainer.options import Output, TrainOptions
from infeed.components.transform.features import AnyFeature, features_from_json, features_to_json
from infeed.components.transform.kinds.clean import (
    AnyClean,
    Clip,
    Fill,
    FillWith,
    LowerCase,
    StripAccents,
    Tokens,
    Trim,
)
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.encode import Bucketize, Cross, Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.image import DecodeImage
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import Cycle, Log, MinMax, Robust, ZScore
from infeed.components.transform.kinds.text import BagOfWords
from infeed.components.transform.kinds.vectors import PretrainedVectors
from infeed.pipelines.config import Blessing
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import EphemeralVolume, KeySource, Toleration, Volume
from infeed.pipelines.deploy.vertex import Endpoint, Training, VertexOptions

pytestmark = pytest.mark.slow  # many examples

SMALLEST = [
    *(Balance("y"), ByColumns(("a",)), ByLabel("y"), ByName("split"), ByRecord("b"), ByTime("day", ("2020",))),
    *(IngestOptions(), ShardOptions(), Spans("{SPAN}")),
    *(
        BigQueryOptions(),
        CsvOptions(),
        ImageOptions(),
        JsonlOptions(),
        ParquetOptions(),
        SqlOptions("URL"),
        TextOptions(),
    ),
    *(Augment(), MapFunction("m:f"), FeedOptions(), Normalise(), Output(), TrainOptions("model:build", "y")),
    *(Blessing("mse", 0.5), Deploy(), Resources(), Toleration(operator="Exists")),
    *(EphemeralVolume("/c", "1Gi"), KeySource("s", {"key": "KEY"}), Volume("c", "/m")),
    *(Endpoint("e", "m", "i"), Training("m"), TrainingJob(2), VertexOptions("p", "r")),
]
FEATURES = [
    *(ZScore("a"), MinMax("a"), Robust("a"), Log("a"), Cycle("a", 7.0)),
    *(Vocabulary("a"), OneHot("a"), Hash("a", 2), Bucketize("a", 2), Cross(("a", "b"), "ab")),
    *(BagOfWords("a"), PretrainedVectors("a", "vectors.txt")),
    *(DecodeImage(1, 1), Fill("a", 0.0), Label("y")),
]
STEPS = [FillWith(0.0), Clip(0.0), Trim(), LowerCase(), StripAccents(), Tokens(), DatePart("year")]
OF = {type(options): options for options in [*SMALLEST, *FEATURES, *STEPS]}
# Numbers that many options can have; those that cannot be are left out by their own checks.
NUMBERS = {
    bool: st.booleans(),
    int: st.integers(0, 3) | st.integers(),
    float: st.floats(0, 1) | st.floats(allow_nan=False),
    str: st.sampled_from(["utf-8", "4", "500m", ";"]) | st.text(),
}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Of a type as options are annotated with it."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return values(of[0])
    if hint is Any:
        return PLAIN
    if hint is type(None):
        return st.none()
    if hint in NUMBERS:
        return NUMBERS[hint]
    if dataclasses.is_dataclass(hint):
        return variants(OF[hint])  # type: ignore[index]
    if origin is Literal:
        return st.sampled_from(of)
    if origin is Mapping:
        return st.dictionaries(st.text(), values(of[1]), max_size=3)
    if origin is tuple and of[-1] is not Ellipsis:
        return st.tuples(*map(values, of))
    if origin in (tuple, Sequence):
        return st.lists(values(of[0]), max_size=3).map(tuple)
    return st.one_of(*map(values, of))


@st.composite
def variants(draw: Callable[..., Any], options: Any) -> Any:
    """The same options with other values in some of them."""
    for name, hint in hints_of(type(options)).items():
        if name not in {f.name for f in dataclasses.fields(options)} or not draw(st.booleans()):
            continue
        try:
            options = dataclasses.replace(options, **{name: draw(values(hint))})
        except InfeedError:  # it cannot be that
            continue
    return options


@pytest.mark.parametrize("smallest", SMALLEST, ids=lambda options: type(options).__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_options_come_back_equal(smallest: Any, data: st.DataObject) -> None:
    options = data.draw(variants(smallest))
    text = json.dumps(schema.to_plain(options))
    assert schema.read(type(options), json.loads(text), exact=True) == options
    assert schema.read(type(options), json.loads(text)) == options


def test_no_kind_of_feature_or_step_is_left_out() -> None:
    for union, tried in ((AnyFeature, FEATURES), (AnyClean, STEPS)):
        assert set(get_args(get_args(union)[0])) == {type(options) for options in tried}


@pytest.mark.parametrize("smallest", FEATURES, ids=lambda feature: feature.kind)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_features_come_back_equal(smallest: Any, data: st.DataObject) -> None:
    feature = data.draw(variants(smallest))
    assert features_from_json(json.loads(json.dumps(features_to_json([feature])))) == [feature]
