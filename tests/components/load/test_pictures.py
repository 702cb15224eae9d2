"""`infeed.load(decode=)`: pictures as pixels of one size."""

import io
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageOps

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import Augment
from infeed.components.load.dataset import load

frameworks = pytest.mark.frameworks
RANDOM = Augment(crop=0.2, stretch=4 / 3, flip="horizontal")


def image(height=40, width=60, seed=0):
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encoded(picture, kind="JPEG", **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def pillow(data):
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


@pytest.fixture
def pictures(write, cache):
    def loaded(files, decode="image", column="image", **options):
        rows = {column: pa.array(files, pa.binary()), "y": pa.array(range(len(files)))}
        path = write("t-train.tfrecord", rows)
        return load(path, cache_dir=cache, decode=decode, **{"batch_size": 4, "shuffle": False, **options})

    return loaded


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def before_all(data, marker, content):
    """Return a JPEG with a segment before all others."""
    return data[:2] + b"\xff" + bytes([marker]) + (len(content) + 2).to_bytes(2, "big") + content + data[2:]


def animated(kind):
    return encoded(image(), kind, save_all=True, append_images=[image(seed=1)])


XMP = b'http://ns.adobe.com/xap/1.0/\0<rdf:RDF><rdf:Description tiff:Orientation="6"/></rdf:RDF>'
TURNED = encoded(image(), exif=exif(6))
ODD = {
    "jpeg": encoded(image()),
    "odd sides": encoded(image(41, 59)),
    "one pixel": encoded(image(1, 1)),
    **{f"subsampling {number}": encoded(image(41, 59), subsampling=number) for number in range(3)},
    "progressive": encoded(image(), progressive=True),
    "restarts": encoded(image(), restart_marker_blocks=1),
    "gray": encoded(image().convert("L")),
    "rgb": encoded(image(), keep_rgb=True),
    "cmyk": encoded(image().convert("CMYK")),
    "turned cmyk": encoded(image().convert("CMYK"), exif=exif(8)),
    **{f"orientation {number}": encoded(image(), exif=exif(number)) for number in range(1, 9)},
    "turned after a long profile": before_all(TURNED, 0xE2, bytes(60_000)),
    "turned by XMP": before_all(encoded(image()), 0xE1, XMP),
    "several pictures": animated("MPO"),
    "bytes after the end": encoded(image()) + b"more",
    "bytes before a marker": encoded(image())[:2] + b"\xff\xff" + encoded(image())[3:],
    "png": encoded(image(), "PNG"),
    "turned png": encoded(image(), "PNG", exif=exif(6)),
    "black and white": encoded(image().convert("1"), "PNG"),
    "palette": encoded(image().convert("P"), "PNG"),
    "palette with transparency": encoded(image().convert("P"), "PNG", transparency=3),
    "alpha": encoded(image().convert("RGBA"), "PNG"),
    "gray and alpha": encoded(image().convert("LA"), "PNG"),
    "animated png": animated("PNG"),
    "gif": encoded(image(), "GIF"),
    "animated gif": animated("GIF"),
    "bmp": encoded(image(), "BMP"),
    "webp": encoded(image(), "WEBP"),
    "animated webp": animated("WEBP"),
    "tiff": encoded(image(), "TIFF", compression="tiff_lzw"),
    "cmyk tiff": encoded(image().convert("CMYK"), "TIFF"),
}


@frameworks
@pytest.mark.parametrize("name", ODD)
def test_pixels_are_those_of_pillow(pictures, name):
    expected = pillow(ODD[name])
    data = pictures([ODD[name]], size=expected.shape[:2])
    np.testing.assert_array_equal(data[0]["image"], expected)


@frameworks
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_a_gray_picture_of_16_bits_keeps_its_upper_bits(pictures, kind):
    wide = np.random.default_rng(0).integers(0, 1 << 16, (20, 30), np.uint16)
    data = pictures([encoded(Image.fromarray(wide), kind)], size=(20, 30))
    np.testing.assert_array_equal(data[0]["image"][..., 1], (wide >> 8).astype(np.uint8))


@frameworks
@pytest.mark.parametrize("resize", ["stretch", "crop", "fit", "none"])
def test_every_rule_gives_one_size(pictures, resize):
    files = [encoded(image(*size)) for size in ((300, 200), (90, 400), (64, 64), (20, 30), (1, 1))]
    batch = next(iter(pictures(files, size=64, resize=resize, batch_size=5)))
    assert batch["image"].shape == (5, 64, 64, 3)
    assert batch["image"].dtype == np.uint8
    np.testing.assert_array_equal(batch["image"][2], pillow(files[2]))
    is_black = (batch["image"][1, 0] == 0).all()
    assert is_black == (resize == "fit")


@frameworks
def test_a_large_picture_is_decoded_at_a_smaller_scale_and_looks_the_same(pictures):
    file = encoded(image(700, 900))
    found = pictures([file], size=(70, 90))[0]["image"]
    expected = np.asarray(Image.fromarray(pillow(file)).resize((90, 70), Image.Resampling.BILINEAR))
    assert np.abs(found.astype(int) - expected).mean() < 2


@frameworks
@pytest.mark.parametrize("threads", [1, 3])
def test_random_windows_repeat_with_their_seed_and_resume(pictures, threads):
    files = [encoded(image(seed=seed)) for seed in range(12)]
    options = {"size": 32, "augment": RANDOM, "shuffle": True, "threads": threads}
    first = [batch["image"] for batch in pictures(files, **options).numpy(epochs=2)]
    rest = [batch["image"] for batch in pictures(files, start_step=2, **options).numpy(epochs=2)]
    np.testing.assert_array_equal(first[2:], rest)
    other = [batch["image"] for batch in pictures(files, seed=1, **options).numpy(epochs=2)]
    assert (np.array(first) != np.array(other)).any()
    halves = [
        [batch["image"] for batch in pictures(files, workers=(index, 2), **options).numpy(epochs=2)] for index in (0, 1)
    ]
    np.testing.assert_array_equal(np.concatenate(halves, axis=1), first)


@frameworks
def test_a_window_shows_a_part_of_its_picture(pictures):
    ramp = np.zeros((64, 64, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(64) * 4, np.arange(64)[:, np.newaxis] * 4
    data = pictures([encoded(Image.fromarray(ramp), "PNG")] * 4, size=32, augment=RANDOM)
    for shown in next(iter(data))["image"].astype(int):
        across, down = np.diff(shown[16, :, 0]), np.diff(shown[:, 16, 1])
        assert (across >= 0).all() or (across <= 0).all()
        assert (down >= 0).all()
        assert 0.1 < np.ptp(shown[16, :, 0]) * np.ptp(shown[:, 16, 1]) / 252**2 <= 1


@frameworks
def test_a_random_cut_without_resizing_shows_real_pixels(pictures):
    picture = image(48, 48)
    file = encoded(picture, "PNG")
    data = pictures([file] * 4, size=32, resize="none", augment=Augment(shift=8))
    source = np.asarray(picture)
    for shown in next(iter(data))["image"]:
        assert any((source[top : top + 32, left : left + 32] == shown).all() for top in range(17) for left in range(17))


@frameworks
def test_rows_are_decoded_and_not_augmented(pictures):
    files = [encoded(image(seed=seed)) for seed in range(4)]
    data = pictures(files, size=(40, 60), augment=RANDOM, column="image/encoded")
    np.testing.assert_array_equal(data[[3, 1]]["image"], [pillow(files[3]), pillow(files[1])])
    assert (data.schema["image"].type, data.schema["image"].shape) == ("uint8", (40, 60, 3))
    assert set(data[0]) == set(data.schema) == {"image", "y"}
    assert data.map(lambda batch: {**batch, "seen": batch["image"].mean(axis=(1, 2, 3))}).numpy(epochs=1)
    assert "5. picture" in str(data.plan)


@frameworks
@pytest.mark.parametrize(
    ("file", "word"),
    [(encoded(image())[:-200], "truncated"), (b"no picture", "format is unknown"), (b"", "no picture")],
)
def test_a_damaged_picture_is_an_error_that_names_its_row(pictures, file, word):
    data = pictures([encoded(image())] * 5 + [file] + [encoded(image())] * 2, size=32, threads=2)
    batches = iter(data)
    next(batches)
    with pytest.raises(InfeedError, match=word) as error:
        next(batches)
    assert "row 5, image" in error.value.where


@frameworks
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_frameworks_get_the_pixels_as_bytes(pictures, framework):
    data = pictures([encoded(image(seed=seed)) for seed in range(4)], size=(40, 60))
    [(features, _)] = getattr(data, framework)(label="y", epochs=1)
    np.testing.assert_array_equal(np.asarray(features["image"]), data[[0, 1, 2, 3]]["image"])
    assert str(features["image"].dtype).endswith("uint8")
    left = [one for one in threading.enumerate() if one.name.startswith("infeed-ahead")]
    for one in left:
        one.join(30)
    assert not any(one.is_alive() for one in left)


@frameworks
@pytest.mark.parametrize("deliver", [lambda data: data.numpy(pack=True), lambda data: data.tf()])
def test_what_cannot_be_decoded_is_refused(pictures, deliver):
    with pytest.raises(InfeedError, match=r"decode|mapped"):
        deliver(pictures([encoded(image())], size=8))


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"size": 0}, "size"),
        ({"size": None}, "size"),
        ({"size": (3, 4, 5)}, "size"),
        ({"size": True}, "size"),
        ({"size": 8, "resize": "cover"}, "resize"),
        ({"size": 8, "augment": Augment(rotate=3.0)}, "augment"),
        ({"size": 8, "augment": "flip"}, "augment"),
        ({"size": 8, "threads": 0}, "threads"),
        ({"size": 8, "decode": "y"}, "decode"),
        ({"size": 8, "decode": "other"}, "decode"),
        ({"size": 8, "decode": None}, "size"),
        ({"decode": None, "threads": 2}, "threads"),
    ],
)
def test_an_option_that_does_not_fit_is_named(pictures, options, option):
    with pytest.raises(InfeedError) as error:
        pictures([encoded(image())], **options)
    assert f"infeed.load, {option}" in error.value.where


def test_without_the_decoder_the_error_names_the_extra(pictures, monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    with pytest.raises(InfeedError, match="simplejpeg") as error:
        pictures([encoded(image())], size=8)
    assert "tfx-infeed[images]" in error.value.do
    assert len(pictures([encoded(image())], decode=None)) == 1
