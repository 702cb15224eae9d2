from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import pack
from infeed.pipelines.cluster.rehearse.rehearsal import Locations, PathMapping


def mapped(text: str, *maps: str) -> object:
    return Locations([PathMapping.parse(map_) for map_ in maps]).apply(text)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("gs://a/data", "/x/data"),
        ("gs://a", "/x"),
        ("gs://ab/data", "gs://ab/data"),  # another bucket
        ("gs://a-b", "gs://a-b"),
        ('{"base": "gs://a/data"}', '{"base": "/x/data"}'),
        ("--temp=gs://a/tmp,gs://a/b", "--temp=/x/tmp,/x/b"),
        ("/data/gs", "/data/gs"),
    ],
)
def test_a_bucket_becomes_a_folder_wherever_it_stands(text: str, result: str) -> None:
    assert mapped(text, "gs://a=/x") == result


def test_the_longest_source_counts() -> None:
    assert mapped("gs://a/data/b gs://a/out", "gs://a=/x", "gs://a/data=/y") == "/y/b /x/out"


def test_one_map_can_stand_for_all_buckets() -> None:
    assert mapped("gs://a/data", "gs://=/x") == "/x/a/data"


def test_a_mounted_folder_can_be_another_one_here() -> None:
    assert mapped("/mnt/data/a.csv", "/mnt/data=/home/me") == "/home/me/a.csv"


def test_a_folder_is_seen_from_here() -> None:
    assert PathMapping.parse("gs://a=data/") == PathMapping("gs://a", os.path.abspath("data"))


def test_a_folder_alone_stands_for_itself() -> None:
    assert PathMapping.parse("/home/me/data") == PathMapping("/home/me/data", "/home/me/data")


def test_a_place_mapped_to_itself_is_used_as_it_is() -> None:
    Locations([PathMapping.parse("gs://a=gs://a")]).check_no_others(["gs://a/data"])
    with pytest.raises(InfeedError, match="gs://b/data"):
        Locations([PathMapping.parse("gs://a=gs://a")]).check_no_others(["gs://a/data", "gs://b/data"])


def test_programs_may_name_what_they_like() -> None:
    Locations([]).check_no_others({"command": ["python", "-c", "print('gs://a/b')"], "description": "as gs://a/b"})


@pytest.mark.parametrize("text", ["gs://a", "=x", "gs://a="])
def test_a_map_has_two_sides(text: str) -> None:
    with pytest.raises(InfeedError, match="--map is"):
        PathMapping.parse(text)


def test_an_image_has_to_see_each_place_of_this_machine_that_the_job_names(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "taxi" / "serving"
    data.mkdir()
    out.parent.mkdir()
    named = {
        "data": str(data),
        "push": json.dumps({"base": str(out)}),
        "there": "/mnt/x/y",
        "more": "gs://a/b /usr/bin",
    }
    with pytest.raises(InfeedError, match=rf"{data} and 1 more(.|\n)*--map {data} --map {out.parent}$"):
        Locations([]).check_seen(named, mounted=["/root"])
    Locations([]).check_seen(named, mounted=[f"{data}", f"{out.parent}/"])
    Locations([]).check_seen(named, mounted=[f"{tmp_path}"])


def test_a_place_in_the_home_folder_of_a_step_is_no_place_of_this_machine(tmp_path: Path) -> None:
    Locations([]).check_seen({"cache_dir": f"~{tmp_path}"}, [])
    with pytest.raises(InfeedError, match="cannot read"):
        Locations([]).check_seen({"cache_dir": str(tmp_path)}, [])


def test_compressed_parameters_are_mapped_and_checked_like_others() -> None:
    assert mapped(pack("root: gs://a/data"), "gs://a=/x") == pack("root: /x/data")
    with pytest.raises(InfeedError, match="gs://b/data"):
        Locations([]).check_no_others({"parameter": pack("root: gs://b/data")})
