from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

import infeed
from infeed.components.base.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.sources import find_layout, find_split_files, split_of


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


def table(path: Path, rows: int, *, label: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{number},{number % 7},{'ab'[number % 2]}" for number in range(rows)]
    text = "\n".join(["x,z,y", *lines]) if label else "\n".join(["x,z", *(line[:-2] for line in lines)])
    csv = path.with_suffix(".csv")
    csv.write_text(text + "\n")
    if path.suffix == ".parquet":
        pq.write_table(pc.read_csv(csv), path)
        csv.unlink()


def resolved(data: Path, **given: Any) -> PipelineConfig:
    return resolve(read_project("tabular"), Overrides(data=str(data), label="y", root=str(data / "runs"), **given))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"),
        ("Training", "train"),
        ("train-00000-of-00002.parquet", "train"),
        ("rides_test.csv.gz", "test"),
        ("fashion-mnist_train.csv", "train"),
        ("dev", "eval"),
        ("gender_submission.csv", None),
        ("trained.csv", None),
        ("rides_train_2024_north.csv", None),
    ],
)
def test_the_first_or_the_last_word_of_a_name_says_the_split(name: str, split: str | None) -> None:
    found = split_of(name)
    assert (found and found[0]) == split


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["train.csv", "test.csv"], {"train": "train.csv", "test": "test.csv"}),
        (["train/1.csv", "train/2.csv", "val/1.csv"], {"train": "train/*.csv", "eval": "val/*.csv"}),
        (["train.csv", "test/1.csv"], {"train": "train.csv", "test": "test/*.csv"}),
        (
            ["train-00000-of-00002.csv", "train-00001-of-00002.csv", "validation-00000-of-00001.csv"],
            {"train": "train-*-of-*.csv", "eval": "validation-00000-of-00001.csv"},
        ),
        (["train_a.csv", "train_b.csv", "test.csv"], {"train": "train*", "test": "test.csv"}),
        (["train.csv", "val.csv", "dev.csv"], {"train": "train.csv", "eval": "val.csv"}),
        (["train.csv", "shops.csv"], {}),
        (["1.csv", "test.csv"], {}),
    ],
)
def test_files_and_folders_are_told_by_their_names(tmp_path: Path, names: list[str], patterns: dict[str, str]) -> None:
    for name in names:
        table(tmp_path / name, 1)
    assert find_split_files(str(tmp_path), "csv")[0] == patterns


def test_what_no_pattern_tells_apart_is_an_error(tmp_path: Path) -> None:
    for name in ("north_train", "south_train", "south_test"):
        table(tmp_path / f"{name}.csv", 1)
    with pytest.raises(InfeedError, match=r"north_train\.csv"):
        find_split_files(str(tmp_path), "csv")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_rows_of_each_file_stay_in_its_split(tmp_path: Path, suffix: str) -> None:
    for name, rows in (("train", 300), ("validation", 60), ("test", 40)):
        table(tmp_path / f"{name}{suffix}", rows)
    config = resolved(tmp_path)
    assert config.patterns == {name: f"{file}{suffix}" for name, file in FILES.items()}
    assert (config.splits, config.judged_on, config.survey.rows) == ({}, "test", 400)


FILES = {"train": "train", "eval": "validation", "test": "test"}


def test_the_rows_that_are_scored_never_decide_when_training_stops(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", 300)
    table(tmp_path / "test.csv", 100)
    config = resolved(tmp_path)
    assert config.patterns == {"train": "train.csv", "test": "test.csv"}
    assert (config.splits, config.judged_on) == ({"train": 16, "eval": 4}, "test")
    assert "test (test.csv): scored once" in dict(config.notes)["splits"]
    assert config.survey.undivided == pytest.approx(300, rel=0.1)


def test_a_test_without_labels_is_left_out_and_can_be_predicted(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", 300)
    table(tmp_path / "test.csv", 100, label=False)
    table(tmp_path / "sample_submission.csv", 3)
    config = resolved(tmp_path)
    assert (config.patterns, config.survey.rows) == ({"train": "train.csv"}, 300)
    assert list(config.splits) == ["train", "eval", "test"]
    left_out = [words for about, words in config.notes if about == "left out"]
    assert any(words.startswith("test.csv: no y ") and "infeed predict" in words for words in left_out)
    assert any(words.startswith("sample_submission.csv: ") for words in left_out)


@pytest.mark.tfx
def test_the_example_gen_divides_train_and_leaves_test_whole(tmp_path: Path) -> None:
    from infeed.components.example_gen.executor import Request
    from infeed.pipelines.pipeline import create_pipeline

    table(tmp_path / "train.csv", 300)
    table(tmp_path / "test.csv", 100)
    example_gen = create_pipeline(resolved(tmp_path)).components[0]
    request = Request.of(example_gen.exec_properties)
    assert (request.patterns, request.splits) == (
        {None: "train.csv", "test": "test.csv"},
        ("train", "eval", "test"),
    )
