from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import infeed
from infeed.components.base.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.sources import find_layout


def pictures(root: Path, *names: str) -> str:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(root / name)
    return str(root)


def both(split: str, count: int = 1) -> list[str]:
    return [f"{split}/{name}/{number}.png" for name in ("cat", "dog") for number in range(count)]


WHOLE = {"train": "train", "eval": "validation", "test": "test"}


def test_class_folders_are_split_by_hash(tmp_path: Path) -> None:
    layout = find_layout(pictures(tmp_path, "cat/1.png", "train/1.png"))  # a class may well be called train
    assert [image.text for image in layout.images] == ["cat", "train"]
    assert layout.splits == {}


@pytest.mark.parametrize(
    ("names", "splits", "unused"),
    [
        (["train", "val"], {"train": "train/*/*", "eval": "val/*/*"}, ""),
        (["train"], {"train": "train/*/*"}, ""),
        (["Training", "test"], {"train": "Training/*/*", "test": "test/*/*"}, ""),
        (["train", "test", "validation"], {k: f"{v}/*/*" for k, v in WHOLE.items()}, ""),
        (["train", "extra", "val"], {"train": "train/*/*", "eval": "val/*/*"}, "extra"),
    ],
)
def test_folders_of_splits_are_told_by_their_names(
    tmp_path: Path, names: list[str], splits: dict[str, str], unused: str
) -> None:
    layout = find_layout(pictures(tmp_path, *(path for name in names for path in both(name))))
    assert (layout.splits, layout.unused) == (splits, unused)
    assert [(image.filename, image.text) for image in layout.images] == [
        (f"{pattern.partition('/')[0]}/{name}/0.png", name) for pattern in splits.values() for name in ("cat", "dog")
    ]


def test_what_other_tools_left_behind_is_no_picture_and_no_class(tmp_path: Path) -> None:
    pictures(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "__MACOSX" / "cat").mkdir(parents=True)
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"x")
    assert {image.text for image in find_layout(str(tmp_path)).images} == {"cat", "dog"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["1.png", "2.png"], r"no classes: 1.png is directly in the folder(.|\n)*folder for each class"),
        (["a/b/cat/1.png"], r"deeper than one folder per class: a/b/cat/1.png(.|\n)*class folders"),
    ],
)
def test_another_layout_says_what_to_do(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        find_layout(pictures(tmp_path, *names))


@pytest.mark.parametrize("required", ["label", "label/text"])
def test_pictures_without_a_label_are_left_out_or_bad_rows(tmp_path: Path, required: str) -> None:
    pictures(tmp_path, *(f"{number}.png" for number in range(40)))
    lines = [f"{number}.png,{'' if number % 10 == 0 else ('cat', 'dog')[number % 2]}" for number in range(40)]
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    given = {"data": str(tmp_path), "root": str(tmp_path / "runs")}
    config = resolve(read_project("image"), Overrides(**given))
    assert (config.survey.rows, config.survey.rejected, config.survey.unlabeled) == (36, 0, 4)
    assert "4 images without a label" in dict(config.notes)["left out"]
    manifest = infeed.ingest(tmp_path, tmp_path / "written", format="images", options=config.ingest)
    assert (manifest.rows_read, manifest.filtered, manifest.rejected.rows) == (40, 4, 0)
    with pytest.raises(InfeedError, match="4 of 40 images have no label") as raised:
        resolve(read_project("image"), Overrides(**given, ingest={"required": (required,)}))
    assert "--on-bad-row reject" in raised.value.do
    rejecting = {"on_bad_row": "reject", "required": (required,)}
    config = resolve(read_project("image"), Overrides(**given, ingest=rejecting))
    assert (config.survey.rows, config.survey.rejected, config.survey.unlabeled) == (36, 4, 0)


def test_the_survey_counts_the_pictures_that_pass_the_filter(tmp_path: Path) -> None:
    data = pictures(tmp_path / "pets", *(f"{name}/{number}.png" for name in "abc" for number in range(20)))

    def resolved(**ingest: object) -> PipelineConfig:
        return resolve(read_project("image"), Overrides(data=data, root=str(tmp_path / "runs"), ingest=ingest))

    survey = resolved(filter='label != 2 and field("image/width") == 8').survey
    assert (survey.rows, survey.classes) == (40, ("a", "b"))
    for ingest, word in (
        ({"filter": "label > 7"}, "no image"),
        ({"split_by": "owner"}, "'owner'"),
        ({"columns": "image/encoded"}, "'label/text'"),
    ):
        with pytest.raises(InfeedError, match=word):
            resolved(**ingest)


def test_one_picture_is_no_data(tmp_path: Path) -> None:
    pictures(tmp_path, "cat/1.png")
    with pytest.raises(InfeedError, match="a single image"):
        find_layout(str(tmp_path / "cat" / "1.png"))


def test_pictures_of_a_test_without_classes_are_left_out(tmp_path: Path) -> None:
    layout = find_layout(pictures(tmp_path, *both("train"), "test/1.png", "test/2.png"))
    assert (layout.splits, layout.unused) == ({"train": "train/*/*"}, "test")


def test_the_pipeline_takes_the_splits_as_they_lie_and_says_so(tmp_path: Path) -> None:
    data = pictures(tmp_path / "pets", *both("train", 10), *both("val"), *both("test"), *both("more"))
    config = resolve(read_project("image"), Overrides(data=data, root=str(tmp_path / "runs")))
    assert config.patterns == {"train": "train/*/*", "eval": "val/*/*", "test": "test/*/*"}
    assert (config.splits, config.judged_on) == ({}, "test")
    assert dict(config.notes)["splits"].startswith("train (train/): trained on; eval (val/): ")
    assert dict(config.notes)["left out"].startswith("more: ")


@pytest.mark.parametrize(
    ("beside", "patterns", "shares"),
    [
        ("test", {"train": "train/*/*", "test": "test/*/*"}, {"train": 16, "eval": 4}),
        ("val", {"train": "train/*/*", "eval": "val/*/*"}, {"train": 16, "test": 4}),
    ],
)
def test_the_split_that_has_no_folder_is_cut_out_of_train(
    tmp_path: Path, beside: str, patterns: dict[str, str], shares: dict[str, int]
) -> None:
    data = pictures(tmp_path / "pets", *both("train", 40), *both(beside))
    config = resolve(read_project("image"), Overrides(data=data, root=str(tmp_path / "runs")))
    assert (config.patterns, config.splits, config.judged_on) == (patterns, shares, "test")


@pytest.mark.tfx
def test_the_example_gen_gets_the_splits(tmp_path: Path) -> None:
    from infeed.pipelines.pipeline import create_pipeline

    data = pictures(tmp_path / "pets", *both("train", 10), *both("val"))
    config = resolve(read_project("image"), Overrides(data=data, root=str(tmp_path / "runs")))
    example_gen = create_pipeline(config).components[0]
    assert example_gen.exec_properties["input_config"].count('"pattern"') == 2
    assert example_gen.exec_properties["output_config"].count('"hash_buckets"') == 2
    assert example_gen.exec_properties["input_base"] == data
