import os

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, MapFunction, Normalise, WorkerContext


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"readers": 0}, "readers is 0"),
        ({"shuffle_records": -1}, "shuffle_records is -1"),
        ({"tier": "cloud"}, r"tier is 'cloud'(.|\n)*auto, device, columns, disk, stream"),
        ({"memory_fraction": 1.5}, "memory_fraction is 1.5"),
        ({"disk_fraction": 0}, "disk_fraction is 0"),
        ({"mix": {"a": -1.0, "b": 2.0}}, r"mix is \{'a': -1.0(.|\n)*shares of at least 0"),
        ({"mix": {"a": 0.0}}, r"mix is"),
        ({"class_shares": {"a": float("nan")}}, "class_shares is"),
        ({"class_shares": "even"}, r"class_shares is 'even'(.|\n)*map names to shares"),
        ({"mix": {"a": 1.0}, "class_shares": "equal"}, "mix and class_shares"),
    ],
)
def test_feed_options_out_of_range_are_refused_when_built(options, message):
    with pytest.raises(InfeedError, match=message):
        FeedOptions(**options)


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (Augment, "flip", "vertical"),
        (Augment, "contrast", 1.5),
        *((Augment, "mask_fill", fill) for fill in (1.5, True, -1, 256)),
        (Augment, "shift", -1),
        *((Augment, "crop", crop) for crop in (0, 1.5)),
        (Augment, "stretch", 0.5),
        (Normalise, "std", 0),
    ],
)
def test_options_of_images_out_of_range_are_refused_when_built(kind, option, value):
    with pytest.raises(InfeedError, match=f"{option} is {value!r}"):
        kind(**{option: value})


def test_augmentation_describes_only_what_it_does():
    assert Augment(shift=2, cutout=4).describe() == "shifts by up to 2 px with reflected edges, cuts out 4 x 4 px"
    cropped = "crops to at least 8% of the area and resizes, stretches by a factor of up to 1.33"
    assert Augment(crop=0.08, stretch=4 / 3).describe() == cropped
    assert Augment().describe() == ""


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0)])
def test_workers_are_numbered_from_0(index, count):
    with pytest.raises(InfeedError, match=f"worker index is {index}"):
        WorkerContext(index, count)


def test_a_map_is_given_by_name_by_function_or_as_an_object():
    by_name = FeedOptions(map_batches="mine.py:f", map_examples="a:b")
    assert by_name.maps == {"map_examples": MapFunction("a:b"), "map_batches": MapFunction("mine.py:f")}
    assert FeedOptions(map_batches=os.path.join).maps["map_batches"].function == "posixpath:join"
    assert schema.read(FeedOptions, schema.to_plain(by_name)) == by_name
    given = {"map_batches": {"function": "mine.py:f", "kind": "numpy", "processes": 2}}
    assert schema.read(FeedOptions, given).maps == {"map_batches": MapFunction("mine.py:f", "numpy", 2)}


def test_a_function_that_other_processes_cannot_import_is_refused():
    with pytest.raises(InfeedError, match="lambda"):
        FeedOptions(map_batches=lambda features: features)


@pytest.mark.parametrize("given", [{"kind": "torch"}, {"processes": 0}])
def test_a_wrong_map_names_its_option(given):
    with pytest.raises(InfeedError) as error:
        schema.read(FeedOptions, {"map_batches": {"function": "a:b", **given}}, "train")
    assert error.value.where == f"train.map_batches.{next(iter(given))}"
