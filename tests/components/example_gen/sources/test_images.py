from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources import images
from infeed.components.example_gen.sources.images import Header


def save(path: Path, size: tuple[int, int] = (4, 3), mode: str = "RGB", **options: Any) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path, **options)
    return path.read_bytes()


@pytest.fixture
def pets(tmp_path: Path) -> str:
    for name in ("dog/b.png", "cat/a.jpg", "cat/c.png"):
        save(tmp_path / name)
    for name in (".DS_Store", "_SUCCESS", "cat/.hidden.png", "dog/_SUCCESS"):
        (tmp_path / name).write_text("left by a tool")
    return str(tmp_path)


def test_class_folders(pets: str) -> None:
    index = images.find_images(pets)
    assert index.classes == ("cat", "dog")
    assert [(image.filename, image.text) for image in index.images] == [
        ("cat/a.jpg", "cat"),
        ("cat/c.png", "cat"),
        ("dog/b.png", "dog"),
    ]
    images.check_images(index)


@pytest.mark.parametrize("given", ["labels.csv", ""])
def test_a_csv_of_paths_and_labels(tmp_path: Path, given: str) -> None:
    save(tmp_path / "pictures" / "1.png")
    save(tmp_path / "pictures" / "2.png")
    (tmp_path / "notes.csv").write_text("some,other\n1,2\n")
    (tmp_path / "labels.csv").write_text("label,path\ndog,pictures/2.png\ncat,pictures/1.png\n")
    index = images.find_images(str(tmp_path / given))
    assert index.classes == ("cat", "dog")
    assert [(image.filename, image.text) for image in index.images] == [
        ("pictures/2.png", "dog"),
        ("pictures/1.png", "cat"),
    ]


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("RGB", {"format": "PNG"}, Header("png", 3, 4, 3)),
        ("RGBA", {"format": "PNG"}, Header("png", 3, 4, 4)),
        ("L", {"format": "PNG"}, Header("png", 3, 4, 1)),
        ("LA", {"format": "PNG"}, Header("png", 3, 4, 2)),
        ("1", {"format": "PNG"}, Header("png", 3, 4, 1)),
        ("I;16", {"format": "PNG"}, Header("png", 3, 4, 1)),
        ("P", {"format": "PNG"}, Header("png", 3, 4, 3)),
        ("P", {"format": "PNG", "transparency": 0}, Header("png", 3, 4, 4)),
        ("RGB", {"format": "JPEG"}, Header("jpeg", 3, 4, 3)),
        ("L", {"format": "JPEG"}, Header("jpeg", 3, 4, 1)),
    ],
)
def test_headers(mode: str, options: dict[str, Any], expected: Header) -> None:
    file = io.BytesIO()
    Image.new(mode, (4, 3)).save(file, **options)
    file.seek(0)
    assert images.read_header(file, "x") == expected


def test_a_row_keeps_the_files_own_bytes(tmp_path: Path) -> None:
    content = save(tmp_path / "dog" / "b.png")
    save(tmp_path / "cat" / "a.jpg", size=(10, 20), mode="L")
    index = images.find_images(str(tmp_path))
    batch = images.read_block(index.images, index.classes)
    assert batch.schema == images.SCHEMA
    assert batch.slice(1).to_pylist() == [
        {
            "image/channels": 3,
            "image/encoded": content,
            "image/filename": "dog/b.png",
            "image/format": "png",
            "image/height": 3,
            "image/width": 4,
            "label": 1,
            "label/text": "dog",
        }
    ]


def test_blocks_are_bounded_and_in_order(pets: str) -> None:
    found = images.find_images(pets).images
    size = max(image.size for image in found)
    blocks = list(images.plan_blocks(found, size))
    assert [image for block in blocks for image in block] == list(found)
    assert all(sum(image.size for image in block) <= size for block in blocks)
    assert list(images.plan_blocks(found, 1)) == [(image,) for image in found]  # a large image is a block of its own


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"(?s)no images found.*does not exist.*one folder of PNG or JPEG"):
        images.find_images(str(tmp_path / "typo"))
    with pytest.raises(InfeedError, match=r"(?s)no images found.*which holds nothing"):
        images.find_images(str(tmp_path))


def test_a_flat_folder_says_what_was_there(tmp_path: Path) -> None:
    for number in range(6):
        save(tmp_path / f"{number}.png")
    with pytest.raises(InfeedError, match=r"(?s)no images found.*0\.png, 1\.png, 2\.png, 3\.png and 2 more"):
        images.find_images(str(tmp_path))


def test_an_empty_class_folder(pets: str) -> None:
    (Path(pets) / "bird").mkdir()
    (Path(pets) / "bird" / ".gitkeep").touch()
    with pytest.raises(InfeedError, match=r"(?s)class folder 'bird' is empty.*bird, which holds \.gitkeep"):
        images.find_images(pets)


def test_a_file_that_is_no_image(pets: str) -> None:
    (Path(pets) / "cat" / "notes.txt").write_text("meow")
    with pytest.raises(InfeedError, match=r"(?s)not an image.*cat/notes\.txt"):
        images.check_images(images.find_images(pets))


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"])
def test_an_image_cut_short(pets: str, content: bytes) -> None:
    (Path(pets) / "cat" / "cut.png").write_bytes(content)
    with pytest.raises(InfeedError, match=r"(?s)not an image.*cat/cut\.png"):
        images.check_images(images.find_images(pets))


def test_a_format_that_is_not_taken(pets: str) -> None:
    save(Path(pets) / "cat" / "old.bmp")
    with pytest.raises(InfeedError, match=r"(?s)a BMP image.*cat/old\.bmp.*convert it to PNG or JPEG"):
        images.check_images(images.find_images(pets))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,class\n1.png,cat\n", r"no column 'label'.*labels\.csv, line 1"),
        ("path,label\n", "no images found"),
        ("path,label\n1.png,cat\n2.png,dog\n", r"no file '2\.png'.*labels\.csv, line 3"),
        ("path,label\n1.png,\n", r"no label for '1\.png'.*labels\.csv, line 2"),
    ],
)
def test_a_csv_that_does_not_say_enough(tmp_path: Path, content: str, message: str) -> None:
    save(tmp_path / "1.png")
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(InfeedError, match=f"(?s){message}"):
        images.find_images(str(tmp_path / "labels.csv"))
