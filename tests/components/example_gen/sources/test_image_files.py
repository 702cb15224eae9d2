"""Pictures in folders and in CSVs, whole and damaged; covers `image_codec`, too."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opened_sources import rows_of
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources import image_codec, image_files
from infeed.components.example_gen.sources.image_codec import ImageHeader, ImageOptions


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
    index = image_files.find_images(pets)
    assert [(image.filename, image.text) for image in index.images] == [
        ("cat/a.jpg", "cat"),
        ("cat/c.png", "cat"),
        ("dog/b.png", "dog"),
    ]


@pytest.mark.parametrize("given", ["labels.csv", ""])
def test_a_csv_of_paths_and_labels(tmp_path: Path, given: str) -> None:
    save(tmp_path / "pictures" / "1.png")
    save(tmp_path / "pictures" / "2.png")
    (tmp_path / "notes.csv").write_text("some,other\n1,2\n")
    (tmp_path / "labels.csv").write_text("label,path\ndog,pictures/2.png\ncat,pictures/1.png\n")
    index = image_files.find_images(str(tmp_path / given))
    assert [(image.filename, image.text) for image in index.images] == [
        ("pictures/2.png", "dog"),
        ("pictures/1.png", "cat"),
    ]


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("RGB", {"format": "PNG"}, ImageHeader("png", 3, 4, 3)),
        ("RGBA", {"format": "PNG"}, ImageHeader("png", 3, 4, 4)),
        ("L", {"format": "PNG"}, ImageHeader("png", 3, 4, 1)),
        ("LA", {"format": "PNG"}, ImageHeader("png", 3, 4, 2)),
        ("1", {"format": "PNG"}, ImageHeader("png", 3, 4, 1)),
        ("I;16", {"format": "PNG"}, ImageHeader("png", 3, 4, 1)),
        ("P", {"format": "PNG"}, ImageHeader("png", 3, 4, 3)),
        ("P", {"format": "PNG", "transparency": 0}, ImageHeader("png", 3, 4, 4)),
        ("RGB", {"format": "JPEG"}, ImageHeader("jpeg", 3, 4, 3)),
        ("L", {"format": "JPEG"}, ImageHeader("jpeg", 3, 4, 1)),
    ],
)
def test_headers(mode: str, options: dict[str, Any], expected: ImageHeader) -> None:
    file = io.BytesIO()
    Image.new(mode, (4, 3)).save(file, **options)
    file.seek(0)
    assert image_codec.read_header(file, "x") == expected
    assert image_codec.header_of(file.getvalue(), "x") == expected


@example("JPEG", 167, 0, 0)  # no channels
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["PNG", "JPEG"]), st.integers(0, 300), st.integers(0, 255), st.integers(0, 300))
def test_a_damaged_header_never_makes_an_error_of_another_kind(form: str, place: int, byte: int, cut: int) -> None:
    file = io.BytesIO()
    Image.new("RGB", (4, 3)).save(file, form)
    data = bytearray(file.getvalue())
    data[place % len(data)] = byte
    try:
        header = image_codec.header_of(bytes(data[: len(data) - cut]), "x")
    except InfeedError:
        return
    assert min(header.height, header.width, header.channels) > 0


def rows(root: str, pattern: str = "*/*", bad_rows: BadRows | None = None, **options: Any) -> list[dict[str, Any]]:
    opened = image_files.open_images(root, {None: pattern}, IngestOptions(block_bytes=4096), ImageOptions(**options))
    return rows_of(opened, bad_rows)


def test_a_row_keeps_the_files_own_bytes(tmp_path: Path) -> None:
    content = save(tmp_path / "dog" / "b.png")
    save(tmp_path / "cat" / "a.jpg", size=(10, 20), mode="L")
    assert rows(str(tmp_path))[1] == {
        "image/channels": 3,
        "image/encoded": content,
        "image/filename": "dog/b.png",
        "image/format": "png",
        "image/height": 3,
        "image/width": 4,
        "label": 1,
        "label/text": "dog",
    }


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    assert image_files.default_pattern(str(tmp_path)) == "*"
    assert sorted(rows(str(tmp_path), "*")[0]) == [
        "image/channels",
        "image/encoded",
        "image/filename",
        "image/format",
        "image/height",
        "image/width",
    ]


def test_raw_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    (tmp_path / "cat").mkdir()
    Image.fromarray(pixels).save(tmp_path / "cat" / "a.png")
    (row,) = rows(str(tmp_path), pixels="raw")
    assert (row["image/height"], row["image/width"], row["image/channels"]) == (5, 7, 3)
    assert row["image/raw"] == pixels.tobytes()
    assert not {"image/encoded", "image/format"} & set(row)


@pytest.mark.parametrize(
    ("name", "mode", "form"), [("a.jpg", "L", "jpeg"), ("a.png", "P", "png"), ("b.jpg", "CMYK", "jpeg")]
)
def test_scaled_images_stay_what_they_were(tmp_path: Path, name: str, mode: str, form: str) -> None:
    save(tmp_path / "cat" / name, size=(40, 30), mode=mode)
    (row,) = rows(str(tmp_path), size=[10, 20], channels=3)
    assert (row["image/height"], row["image/width"], row["image/channels"], row["image/format"]) == (10, 20, 3, form)
    with Image.open(io.BytesIO(row["image/encoded"])) as image:
        assert (image.size, image.mode, image.format) == ((20, 10), "RGB", form.upper())


def test_scaled_images_are_turned_as_their_camera_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its right side
    (tmp_path / "cat").mkdir()
    left_half = Image.new("L", (40, 30), 255)
    left_half.paste(0, (0, 0, 20, 30))
    left_half.save(tmp_path / "cat" / "a.jpg", exif=exif)
    (row,) = rows(str(tmp_path), size=[40, 30], channels=1)
    with Image.open(io.BytesIO(row["image/encoded"])) as image:
        assert image.size == (30, 40)
        assert image.getpixel((15, 5)) < 50  # what was left is on top
        assert image.getpixel((15, 35)) > 200


def test_raw_batches_stay_small_however_well_files_compress(tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path / "cat" / f"{number}.png", size=(40, 40))  # 4,800 bytes decoded, a hundred encoded
    opened = image_files.open_images(
        str(tmp_path), {None: "*/*"}, IngestOptions(block_bytes=4096), ImageOptions(pixels="raw")
    )
    assert [batch.num_rows for batch in opened.read(opened.tasks[0].payload, bad_rows=BadRows())] == [1, 1, 1, 1]


def test_what_is_no_whole_image_is_set_aside(pets: str) -> None:
    whole = save(Path(pets) / "dog" / "large.png", size=(50, 50))
    (Path(pets) / "cat" / "cut.png").write_bytes(whole[:-20])
    (Path(pets) / "cat" / "notes.txt").write_text("meow")
    save(Path(pets) / "cat" / "old.bmp")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 50), np.uint8))
    noise.save(Path(pets) / "dog" / "photo.jpg")
    photo = (Path(pets) / "dog" / "photo.jpg").read_bytes()
    (Path(pets) / "dog" / "cut.jpg").write_bytes(photo[:-200])
    (Path(pets) / "dog" / "trailer.jpg").write_bytes(photo + b"left by a camera" * 10)
    bad_rows = BadRows("reject", 10)
    good = rows(pets, bad_rows=bad_rows)
    assert [row["image/filename"] for row in good if row["label/text"] == "cat"] == ["cat/a.jpg", "cat/c.png"]
    assert [row["image/filename"] for row in good if row["label/text"] == "dog"][1:] == [
        "dog/large.png",
        "dog/photo.jpg",
        "dog/trailer.jpg",
    ]
    assert [(row.file.removeprefix(f"{pets}/"), row.reason.partition(":")[0]) for row in bad_rows.take()] == [
        ("cat/cut.png", "the image is truncated"),
        ("cat/notes.txt", "not an image"),
        ("cat/old.bmp", "the format is BMP"),
        ("dog/cut.jpg", "the image is truncated"),
    ]


@pytest.mark.parametrize(
    ("name", "do"), [("old.gif", "convert the image to PNG or JPEG"), ("x.png", "replace it by a PNG")]
)
def test_the_error_of_a_bad_file_says_what_to_do_with_it_beside_rejecting_it(
    tmp_path: Path, name: str, do: str
) -> None:
    (tmp_path / "x.png").write_bytes(b"meow")
    if name.endswith("gif"):
        save(tmp_path / name)
    with pytest.raises(InfeedError) as error:
        rows(str(tmp_path), name)
    assert error.value.where == str(tmp_path / name)
    assert do in error.value.do
    assert "on_bad_row" in error.value.do


def test_more_bits_than_raw_pixels_hold(tmp_path: Path) -> None:
    save(tmp_path / "a.png", mode="I;16")
    with pytest.raises(InfeedError, match="more than 8 bits per channel"):
        rows(str(tmp_path), "*", pixels="raw")
    assert rows(str(tmp_path), "*")[0]["image/channels"] == 1


def test_an_image_that_a_csv_names_changes_the_fingerprint(tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    (tmp_path / "labels.csv").write_text("path,label\n1.png,cat\n")
    before = image_files.fingerprint_of_named(str(tmp_path), ["labels.csv"])
    assert before == image_files.fingerprint_of_named(str(tmp_path), ["labels.csv"])
    save(tmp_path / "1.png", size=(30, 30))
    assert before != image_files.fingerprint_of_named(str(tmp_path), ["labels.csv"])
    assert image_files.fingerprint_of_named(str(tmp_path), ["*.png"]) is None


def test_rows_of_a_csv_that_name_no_image_are_set_aside(tmp_path: Path) -> None:
    content = save(tmp_path / "1.png")
    (tmp_path / "labels.csv").write_text("path,label\n2.png,dog\n1.png,cat\n1.png,\n")
    options = IngestOptions(on_bad_row="reject")
    opened = image_files.open_images(str(tmp_path), {None: "labels.csv"}, options)
    bad_rows = BadRows("reject", 10)
    assert [row["image/encoded"] for row in rows_of(opened, bad_rows)] == [content]
    assert [(row.line, row.column, row.reason, row.text) for row in bad_rows.take()] == [
        (2, "path", "there is no file '2.png' relative to the CSV", "2.png,dog"),
        (4, "label", "there is no label for '1.png'", "1.png,"),
    ]


def test_the_images_that_a_csv_names_are_the_source(tmp_path: Path) -> None:
    content = save(tmp_path / "1.png")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.png,cat\n")
    source = image_files.open_images(str(tmp_path), {None: "labels.csv"}, IngestOptions()).provenance
    assert (source.files, source.bytes) == (2, len(content) + table.stat().st_size)


@pytest.mark.parametrize("options", [{"pixels": "ascii"}, {"size": (0, 3)}, {"size": (3,)}, {"channels": 2}])
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(InfeedError, match=f"{next(iter(options))} is "):
        ImageOptions(**options)


def test_a_folder_without_images_or_classes_says_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"(?s)no images found.*does not exist.*one folder of PNG or JPEG"):
        image_files.find_images(str(tmp_path / "typo"))
    with pytest.raises(InfeedError, match=r"(?s)no images found.*which holds nothing"):
        image_files.find_images(str(tmp_path))
    for number in range(6):
        save(tmp_path / f"{number}.png")
    with pytest.raises(InfeedError, match=r"(?s)no images found.*0\.png, 1\.png, 2\.png, 3\.png and 2 more"):
        image_files.find_images(str(tmp_path))


def test_an_empty_class_folder(pets: str) -> None:
    (Path(pets) / "bird").mkdir()
    (Path(pets) / "bird" / ".gitkeep").touch()
    with pytest.raises(InfeedError, match=r"(?s)class folder 'bird' is empty.*bird, which holds \.gitkeep"):
        image_files.find_images(pets)


@pytest.mark.parametrize("content", [b"", b"meow", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"])
def test_a_file_that_is_no_image(pets: str, content: bytes) -> None:
    (Path(pets) / "cat" / "cut.png").write_bytes(content)
    with pytest.raises(InfeedError, match=r"(?s)not an image.*cat/cut\.png"):
        rows(pets)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,class\n1.png,cat\n", r"no column 'label'.*labels\.csv, line 1"),
        ("path,label\n", "no images found"),
        ("path,label\n1.png,cat\n2.png,dog\n", r"no file '2\.png'.*labels\.csv, line 3"),
        ("path,label\n1.png,\n", r"no label for '1\.png'.*labels\.csv, line 2"),
        (b"path,label\n1.png,\xff\n", r"not UTF-8 text.*labels\.csv"),
    ],
)
def test_a_csv_that_does_not_say_enough(tmp_path: Path, content: str | bytes, message: str) -> None:
    save(tmp_path / "1.png")
    (tmp_path / "labels.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InfeedError, match=f"(?s){message}"):
        image_files.find_images(str(tmp_path / "labels.csv"))


def damaged(data: bytes, place: int, by: bytes) -> bytes:
    return data[:place] + by + data[place + len(by) :]


def photo(form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)).save(file, form, **options)
    return file.getvalue()


PROGRESSIVE, JPEG, PNG = photo("jpeg", progressive=True), photo("jpeg"), photo("png")
PIXELS = JPEG.index(b"\xff\xda") + 300
DAMAGED = [
    (damaged(PNG, 500, bytes([PNG[500] ^ 1])), "the PNG is damaged: wrong checksum of the chunk at byte 33"),
    (damaged(PNG, 19, b"\x33"), "the PNG is damaged: wrong checksum of the chunk at byte 8"),
    (PNG[:-4], "the image is truncated: it has no end"),
    (PNG[:-12], "the image is truncated: it has no end"),
    (damaged(JPEG, PIXELS, b"\xff\xfe"), f"the JPEG is damaged: its pixels end at byte {PIXELS}"),
    (damaged(JPEG, JPEG.index(b"\xff\xc4") + 5, b"\x09"), "the image is truncated or damaged"),
    (JPEG[: JPEG.index(b"\xff\xdb")] + JPEG[JPEG.index(b"\xff\xc0") :], "the image is truncated or damaged"),
    (JPEG[:-2], "the image is truncated: it has no end"),
    (damaged(PROGRESSIVE, PROGRESSIVE.rindex(b"\xff\xda") + 7, b"\x40"), "the JPEG is damaged: its pixels end"),
]


@pytest.mark.parametrize(("data", "reason"), DAMAGED)
def test_a_damaged_image_is_set_aside_by_name(pets: str, data: bytes, reason: str) -> None:
    (Path(pets) / "cat" / "damaged").write_bytes(data)
    for name, whole in (("a", PNG), ("b", JPEG), ("c", PROGRESSIVE), ("d", JPEG + b"left by a camera")):
        (Path(pets) / "cat" / f"whole {name}").write_bytes(whole)
    bad_rows = BadRows("reject", 10)
    good = rows(pets, bad_rows=bad_rows)
    assert sum("whole" in row["image/filename"] for row in good) == 4
    (bad,) = bad_rows.take()
    assert bad.file.endswith("cat/damaged")
    assert bad.reason.startswith(reason)


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"progressive": True}, {"subsampling": 0}, {"quality": 5}])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_whole_jpeg_is_not_decoded_to_find_out(mode: str, options: dict[str, Any]) -> None:
    file = io.BytesIO()
    Image.new("RGB", (33, 17), "teal").convert(mode).save(file, "jpeg", exif=Image.Exif(), **options)
    assert image_codec.damage_of_jpeg(file.getvalue()) == ""


@pytest.mark.parametrize("name", ["large.png", "large.jpg"])
@pytest.mark.parametrize("options", [{}, {"pixels": "raw"}, {"size": (4, 4)}])
def test_a_picture_that_decodes_to_more_than_the_limit_is_set_aside(
    pets: str, name: str, options: dict[str, Any]
) -> None:
    save(Path(pets) / "cat" / name, size=(700, 600))  # 1.2 MB decoded
    opened = image_files.open_images(pets, {None: "*/*"}, IngestOptions(max_row_mb=1), ImageOptions(**options))
    (task,) = opened.tasks
    bad_rows = BadRows("reject", 10)
    assert sum(batch.num_rows for batch in opened.read(task.payload, bad_rows=bad_rows)) == 3
    (bad,) = bad_rows.take()
    assert bad.file.endswith(f"cat/{name}")
    assert "700 x 600 pixels decodes to 2 MB" in bad.reason
    with pytest.raises(InfeedError, match="700 x 600") as raised:
        list(opened.read(task.payload, bad_rows=BadRows()))
    assert "--max-row-mb" in raised.value.do


def test_a_size_to_scale_to_counts_against_the_limit(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    opened = image_files.open_images(
        str(tmp_path), {None: "*"}, IngestOptions(max_row_mb=1), ImageOptions(size=(1_000, 1_000))
    )
    with pytest.raises(InfeedError, match="1,000 x 1,000") as raised:
        list(opened.read(opened.tasks[0].payload, bad_rows=BadRows()))
    assert raised.value.where.endswith("a.png")


def test_the_limit_is_ours_and_not_pillows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400_000)  # Pillow refuses twice as many
    save(tmp_path / "a.png", size=(1_000, 1_000), mode="P")
    assert len(rows(str(tmp_path), "*")) == len(rows(str(tmp_path), "*", pixels="raw")) == 1
    assert Image.MAX_IMAGE_PIXELS == 400_000


LONG = "path,label," + "x" * 200_000  # more than a cell may have
ONE = "path,label\n1.png,cat\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [(LONG, 1), (ONE + LONG, 3), (f'{ONE}1.png,"cat" and dog\n1.png,dog', ""), (f'{ONE}1.png,"never closed\n', "")],
)
def test_a_list_of_pictures_that_is_no_csv(tmp_path: Path, content: str, line: int | str) -> None:
    save(tmp_path / "1.png")
    (tmp_path / "labels.csv").write_text(f"{content}\n")
    with pytest.raises(InfeedError, match="not CSV") as raised:
        image_files.find_images(str(tmp_path / "labels.csv"))
    assert f"labels.csv, line {line}" in raised.value.where
    assert "quotes" in raised.value.do


@pytest.mark.parametrize("how", ["../secret.png", "{folder}/secret.png"])
def test_a_csv_may_not_name_pictures_outside_of_its_folder_unless_allowed(tmp_path: Path, how: str) -> None:
    save(tmp_path / "secret.png")
    save(tmp_path / "data/a.png")
    path = tmp_path / "data/labels.csv"
    path.write_text(f"path,label\na.png,x\n{how.format(folder=tmp_path)},y\n")
    with pytest.raises(InfeedError) as raised:
        image_files.find_images(str(path))
    assert raised.value.where.startswith(f"{path}, line 3")
    assert len(image_files.find_images(str(path), allow_outside=True).images) == 2
    bad_rows = BadRows("reject", 10)
    assert len(image_files.find_images(str(path), bad_rows).images) == 1
    (tmp_path / "data/link.png").symlink_to("../secret.png")
    path.write_text("path,label\na.png,x\nlink.png,y\n")
    assert len(image_files.find_images(str(path)).images) == 2


@pytest.mark.parametrize("what", ["pictures", "classes"])
def test_links_to_pictures_and_to_class_folders_are_followed(tmp_path: Path, what: str) -> None:
    for name in "ab":
        save(tmp_path / f"store/{name}/1.png")
        (tmp_path / "data" / (name if what == "pictures" else "")).mkdir(parents=True, exist_ok=True)
        link = f"{name}/1.png" if what == "pictures" else name
        (tmp_path / "data" / link).symlink_to(tmp_path / "store" / link)
    assert [row["label"] for row in rows(str(tmp_path / "data"), "*/*")] == [0, 1]
    assert [one.text for one in image_files.find_images(str(tmp_path / "data")).images] == ["a", "b"]
