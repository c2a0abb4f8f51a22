"""Bytes from anywhere become an upright RGB image, or one plain sentence."""

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, PngImagePlugin

from core.files.images import (
    decode_image,
    fit_square,
    frames_note,
    open_image,
    png,
)
from tests.helpers.picture_files import (
    animation,
    encoded,
    halves,
    is_read,
    mutated_files,
    whole_files,
)

RED, BLUE, GREY = [255, 0, 0], [0, 0, 255], [76, 76, 76]  # L of red is 76
ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tests" / "benchmarks" / "results" / "pictures.json"

# Decoders tell the log about damaged facts and about large images.
pytestmark = pytest.mark.filterwarnings("ignore")


def noise() -> Image.Image:
    """Return an image that does not compress."""
    values = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.mark.parametrize("size", [8, 2200], ids=["small", "large"])
@pytest.mark.parametrize(
    ("mode", "kind", "left"),
    [
        ("RGB", "PNG", RED),
        ("RGB", "JPEG", RED),
        ("RGB", "WEBP", RED),
        ("RGB", "BMP", RED),
        ("RGBA", "PNG", RED),
        ("P", "GIF", RED),
        ("CMYK", "TIFF", RED),
        ("CMYK", "JPEG", RED),  # Pillow writes these upside down, as Adobe does
        ("YCbCr", "TIFF", RED),
        ("LAB", "TIFF", RED),
        ("L", "PNG", GREY),
        ("LA", "PNG", GREY),
        ("I", "TIFF", GREY),
        ("I;16", "PNG", GREY),
        ("I;16", "TIFF", GREY),
        ("F", "TIFF", GREY),
    ],
)
def test_every_mode_keeps_its_colours_at_any_size(mode, kind, left, size):
    """Left stays red and right stays blue, however the file stores colour.

    The large image goes through several blocks, each made smaller at once.
    """
    pixels = decode_image(encoded(halves(mode, size), kind), (3, 8, 8)).astype(int)
    right = BLUE if left == RED else [29, 29, 29]  # L of blue
    assert np.abs(pixels[:, 4, 1] - left).max() < 24
    assert np.abs(pixels[:, 4, 6] - right).max() < 24


def test_black_and_white_is_read():
    """An image of one bit is black and white, not almost black."""
    picture = Image.new("1", (8, 8), 1)
    picture.paste(0, (0, 0, 4, 8))
    for kind in ("PNG", "TIFF", "BMP", "PPM"):
        pixels = decode_image(encoded(picture, kind), (1, 8, 8))[0]
        assert (pixels[:, :4] == 0).all() and (pixels[:, 4:] == 255).all(), kind


@pytest.mark.parametrize(
    ("kind", "size"),
    [("PNG", 8), ("JPEG", 8), ("WEBP", 8), ("TIFF", 8), ("MPO", 8), ("JPEG", 2400)],
)
def test_a_rotated_photo_is_turned_upright(kind, size):
    """The camera's orientation tag is obeyed, and once only."""
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    data = encoded(halves(size=size), kind, exif=exif)
    pixels = decode_image(data, (3, 8, 8))
    assert pixels[2, 4, 1] > 200 > 55 > pixels[0, 4, 1]  # blue is on the left now
    exif[0x0112] = 6  # a quarter
    data = encoded(halves(size=size).crop((0, 0, size, size // 2)), kind, exif=exif)
    picture = open_image(data)
    assert picture.width * 2 == picture.height
    assert picture.getpixel((2, 1))[0] > 200  # what was left is on top


def test_damaged_facts_do_not_make_a_photo_unreadable():
    """EXIF or a profile that cannot be read leaves the image as it is."""
    plain = open_image(encoded(halves(), "PNG"))
    for facts in ({"exif": b"Exif\0\0MM\0*\xff\xff"}, {"icc_profile": b"no" * 99}):
        assert open_image(encoded(halves(), "PNG", **facts)) == plain


def test_a_profile_is_obeyed():
    """Colours come in sRGB: numbers of a profile with another white are changed."""
    yellowish = ImageCms.createProfile("sRGB")
    data = ImageCms.ImageCmsProfile(yellowish).tobytes()
    same = open_image(encoded(noise(), icc_profile=data))
    np.testing.assert_allclose(np.asarray(same), np.asarray(noise()), atol=1)
    # The same profile, its red and blue primaries exchanged.
    swapped = bytearray(data)
    for entry in range(128 + 4, 128 + 4 + 12 * data[131], 12):
        name = bytes(swapped[entry : entry + 4])
        if name in (b"rXYZ", b"bXYZ"):
            other = b"bXYZ" if name == b"rXYZ" else b"rXYZ"
            swapped[entry : entry + 4] = other
    pixels = np.asarray(open_image(encoded(halves(), icc_profile=bytes(swapped))))
    assert (pixels[4, 1] == BLUE).all() and (pixels[4, 6] == RED).all()


def test_transparency_becomes_white():
    """A see-through pixel is paper, not black, however a file says see-through."""
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    for kind in ("PNG", "WEBP", "TIFF", "AVIF"):
        assert (decode_image(encoded(clear, kind), (3, 8, 8)) >= 254).all(), kind
    half = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    assert (decode_image(encoded(half), (3, 8, 8)) == 127).all()
    deep = Image.fromarray(np.full((8, 8), 1000, np.uint16))
    for picture, value in [
        (halves(), (255, 0, 0)),
        (halves("L"), 76),
        (halves("P"), halves("P").getpixel((0, 0))),
        (deep, 1000),
    ]:
        data = encoded(picture, transparency=value)
        assert (decode_image(data, (3, 8, 8))[:, 4, 1] == 255).all(), picture.mode


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32])
def test_grey_keeps_its_brightness_at_any_depth(dtype):
    """Half of the largest value is mid grey, in 8 bits, 16 bits and as fractions."""
    largest = {np.uint8: 255, np.uint16: 65535, np.int32: 65535, np.float32: 1}[dtype]
    half = np.full((8, 8), largest / 2, dtype)
    half[0, 0] = largest
    kind = "PNG" if dtype in (np.uint8, np.uint16) else "TIFF"
    pixels = decode_image(encoded(Image.fromarray(half), kind), (3, 8, 8))
    assert np.abs(pixels[:, 1:].astype(int) - 127).max() <= 1


def test_a_dark_picture_of_16_bits_stays_dark():
    """What is white follows from the kind of file, not from the brightest pixel."""
    dark = np.full((8, 8), 200, np.uint16)
    for kind in ("PNG", "TIFF", "PPM"):
        pixels = decode_image(encoded(Image.fromarray(dark), kind), (3, 8, 8))
        assert pixels.max() <= 1, kind


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "AVIF", "TIFF", "MPO"])
def test_of_several_pictures_the_first_is_read_and_said(kind):
    """An animation's second, white frame is not seen."""
    data = animation(kind)
    pixels = decode_image(data, (3, 8, 8)).astype(int)
    assert np.abs(pixels[:, 4, 1] - RED).max() < 60
    said = {"TIFF": "the first page", "MPO": ""}
    assert frames_note(data) == said.get(kind, "the first frame of an animation")
    assert frames_note(encoded(halves())) == frames_note(b"nothing") == ""


def test_a_page_says_that_a_frame_was_taken(tiny_explorer):
    """The description of an uploaded animation names the frame."""
    query = tiny_explorer.query_from_upload(animation("GIF"))
    assert query.description.startswith("Your image · the first frame of an animat")
    assert tiny_explorer.query_from_upload(encoded(halves())).description == (
        "Your image · measured as no class"
    )


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 1_000_000), (1_000_000, 1), (100_000, 3), (2049, 2049)]
)
def test_any_shape_is_fitted_whole(size):
    """Tiny, and as long as a thread: all of it is there, and nothing but it."""
    data = encoded(Image.new("L", size, 77))
    picture = open_image(data)
    assert picture.getextrema() == ((77, 77),) * 3
    pixels = decode_image(data, (3, 16, 16))[0]
    length = 16 * np.array(size[::-1]) // max(size)
    assert (pixels == 77).sum() == np.maximum(length, 1).prod()


def test_a_long_picture_is_fitted_whole():
    """Nothing is cropped or stretched: the rest is white, the image centred."""
    square = np.asarray(fit_square(Image.new("RGB", (40, 10), "red"), 20))
    red = (square == RED).all(2)
    assert red[8:12].all()
    assert (square[:6] == 255).all() and (square[14:] == 255).all()


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_a_picture_is_the_same_at_every_size(kind):
    """Read from 300 or from 2,200 pixels, it differs by less than a grey level."""
    seed = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    found = []
    for size in (300, 1500, 2200):
        picture = Image.fromarray(seed).resize((size, size), Image.Resampling.BICUBIC)
        options = {
            "JPEG": {"quality": 98, "subsampling": 0},
            "TIFF": {"compression": "packbits"},
        }[kind]
        found.append(decode_image(encoded(picture, kind, **options), (3, 32, 32)))
    off = [np.abs(found[0].astype(int) - other).mean() for other in found[1:]]
    assert max(off) < 1, off


def beyond(values: list) -> bytes:
    """Return a TIFF of numbers."""
    return encoded(Image.fromarray(np.array([values], np.float32)), "TIFF")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "The file is empty"),
        (b"GIF89a but not really", "could not be read as an image"),
        (encoded(noise())[:300], "could not be read as an image"),
        (encoded(noise(), "JPEG")[:300], "could not be read as an image"),
        (encoded(halves(), "EPS"), "could not be read as an image"),
        (encoded(halves(), "PDF"), "could not be read as an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "such as HEIC or SVG. Choose"),
        (b"x" * 20_000_001, "at most 20 MB can be read"),
        (beyond([0, np.nan]), "not finite numbers"),
        (beyond([0, 1e6]), "go up to 1e\\+06; numbers up to 65535"),
    ],
)
def test_what_is_no_picture_gets_a_sentence(data, sentence):
    """Empty, false, cut off, too large: each is said in words."""
    with pytest.raises(ValueError, match=sentence):
        open_image(data)


def promise(width: int, height: int) -> bytes:
    """Return a PNG that says how large it is and has no pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    check = struct.pack(">I", zlib.crc32(header))
    pixels = struct.pack(">I", 64) + b"IDAT" + b"\0" * 64
    return PngImagePlugin._MAGIC + struct.pack(">I", 13) + header + check + pixels


@pytest.mark.parametrize("side", [7_200, 12_000, 20_000, 2**31 - 1])
def test_a_lying_header_is_refused_before_decoding(side, monkeypatch):
    """A small file that promises a gigantic image is not decoded."""
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)
    with pytest.raises(ValueError, match="more pixels than the 50 million"):
        open_image(promise(side, side))


def test_kinds_that_take_more_memory_may_have_fewer_pixels():
    """The sentence names the kind and what it may have."""
    data = encoded(Image.new("RGB", (4000, 4000)), "WEBP", method=0, quality=1)
    with pytest.raises(ValueError, match=r"the 12\.5 million that of a WEBP file like"):
        open_image(data)


def test_the_limit_of_pixels_is_one_environment_variable(monkeypatch):
    """Another number is obeyed; what is no number is said."""
    data = encoded(Image.new("L", (2000, 1000)))
    assert open_image(data).size == (2000, 1000)
    monkeypatch.setenv("AFTERIMAGE_MAX_PIXELS", "1000000")
    with pytest.raises(ValueError, match="more pixels than the 1 million"):
        open_image(data)
    monkeypatch.setenv("AFTERIMAGE_MAX_PIXELS", "2000000")
    open_image(data)
    monkeypatch.setenv("AFTERIMAGE_MAX_PIXELS", "2e6")
    with pytest.raises(ValueError, match="AFTERIMAGE_MAX_PIXELS is '2e6'; a whole"):
        open_image(data)


def test_png_round_trip():
    """What the app shows is what the model made, grey or coloured."""
    for channels in (1, 3):
        pixels = np.random.default_rng(0).integers(
            0, 256, (channels, 8, 8), dtype=np.uint8
        )
        again = decode_image(png(pixels), (channels, 8, 8))
        np.testing.assert_array_equal(again, pixels)


def test_whole_files_are_all_read():
    """What the damaged ones below are made of."""
    assert all(is_read(data) for data in whole_files())


@settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(mutated_files(whole_files()) | st.binary(max_size=256))
def test_damaged_files_are_read_or_refused_in_a_sentence(data):
    """No other error, whatever is wrong with a file."""
    is_read(data)


@pytest.mark.long
def test_ten_thousand_damaged_files_take_little_memory(tmp_path):
    """None ends in another error, none takes 300 MB, nor does the largest of a kind."""
    out = tmp_path / "pictures.json"
    command = [sys.executable, "-m", "tests.benchmarks", "pictures", "--out", str(out)]
    assert subprocess.run(command, cwd=ROOT).returncode == 0
    result = json.loads(out.read_text())
    assert result["files"] >= 10_000
    assert min(result["accepted"], result["refused"]) > 1_000
    peaks = [result, *result["largest"].values()]
    assert max(one["peak_megabytes"] for one in peaks) < 300, result
    RESULTS.write_text(out.read_text())
