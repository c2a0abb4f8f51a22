"""Pictures in, examples out: the shipped data sets and whatever a file may hold."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from core.config import DataConfig, collection_config
from core.datasets import load_credits, load_dataset
from core.images import decode_picture, fit_square, open_picture, to_png


def encoded(picture: Image.Image, kind: str = "PNG", **options) -> bytes:
    """Return a picture's file bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def halves(mode: str = "RGB") -> Image.Image:
    """Return a picture whose left half is red and whose right half is blue."""
    picture = Image.new("RGB", (8, 8), "blue")
    picture.paste("red", (0, 0, 4, 8))
    return picture.convert(mode)


def noise() -> Image.Image:
    """Return a picture that does not compress."""
    values = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    return Image.fromarray(values)


def test_glyphs_are_all_there_with_licences_and_credits():
    """6,456 drawings by four houses; every licence has its credit line."""
    config = DataConfig()
    dataset = load_dataset(config)
    assert len(dataset) == 6456
    assert dataset.metadata["style"].value_counts().to_dict() == {
        "noto": 1637,
        "twemoji": 1618,
        "openmoji": 1617,
        "fluent": 1584,
    }
    lines = load_credits(config)["lines"]
    assert set(lines) == set(dataset.metadata["style"])
    licences = dataset.metadata.groupby("style")["license"].first()
    words = {"CC-BY-4.0": "CC BY 4.0", "CC-BY-SA-4.0": "CC BY-SA 4.0"}
    for house, licence in licences.items():
        assert words.get(licence, licence) in lines[house]


def test_fashion2_is_all_there():
    """5,000 grey pictures in two classes; the small preset mixes them evenly."""
    small = load_dataset(collection_config("fashion2").data)
    assert small.pixels.shape == (1000, 1, 16, 16)
    assert np.bincount(small.labels).tolist() == [525, 475]
    config = collection_config("fashion2", "gpu").data
    dataset = load_dataset(config)
    assert dataset.pixels.shape == (5000, 1, 32, 32)
    assert dataset.class_names == (("Bag",), ("Sneaker",))
    assert set(load_credits(config)["lines"]) == set(dataset.metadata["license"])


def test_a_class_is_a_combination_of_labels():
    """House x subject: equal labels mean equal values, whatever the order of rows."""
    dataset = load_dataset(collection_config("glyphs").data)
    assert len(dataset) == 2181
    rows = dataset.metadata[["style", "subgroup"]].to_numpy()
    expected = [dataset.class_names[label] for label in dataset.labels]
    assert [tuple(row) for row in rows] == expected
    assert (np.diff(dataset.ids) > 0).all()


def test_images_are_the_stored_pixels():
    """Float images in [-1, 1] are the file's own values."""
    dataset = load_dataset(DataConfig(limit=3))
    for data, image in zip(dataset.encoded, dataset.images(), strict=True):
        stored = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        expected = stored.transpose(2, 0, 1) / 127.5 - 1
        np.testing.assert_allclose(image.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK"])
def test_every_mode_keeps_its_colours(mode):
    """Left stays red and right stays blue, however the file stores colour."""
    kind = "TIFF" if mode == "CMYK" else "PNG"
    pixels = decode_picture(encoded(halves(mode), kind), (3, 8, 8)).astype(int)
    assert np.abs(pixels[:, 4, 1] - [255, 0, 0]).max() < 8
    assert np.abs(pixels[:, 4, 6] - [0, 0, 255]).max() < 8


def test_a_rotated_photo_is_turned_upright():
    """The camera's orientation tag is obeyed before anything else."""
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    pixels = decode_picture(encoded(halves(), "JPEG", exif=exif), (3, 8, 8))
    assert pixels[2, 4, 1] > 200 > 55 > pixels[0, 4, 1]  # blue is on the left now


def test_transparency_becomes_white():
    """A see-through pixel is paper, not black."""
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    assert (decode_picture(encoded(clear), (3, 8, 8)) == 255).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_grey_keeps_its_brightness_at_any_depth(dtype):
    """Half of the largest value is mid grey, in 8 bits and in 16."""
    half = np.full((8, 8), np.iinfo(dtype).max // 2, dtype)
    pixels = decode_picture(encoded(Image.fromarray(half)), (3, 8, 8))
    assert np.abs(pixels.astype(int) - 127).max() <= 1


def test_a_long_picture_is_fitted_whole():
    """Nothing is cropped or stretched: the rest is white, the picture centred."""
    square = np.asarray(fit_square(Image.new("RGB", (40, 10), "red"), 20))
    red = (square == [255, 0, 0]).all(2)
    assert red[8:12].all()
    assert (square[:6] == 255).all() and (square[14:] == 255).all()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "The file is empty"),
        (b"GIF89a but not really", "could not be read as a picture"),
        (encoded(noise())[:300], "could not be read as a picture"),
        (b"x" * 20_000_001, "at most 20 MB can be read"),
    ],
)
def test_what_is_no_picture_gets_a_sentence(data, sentence):
    """Empty, false, cut off, too large: each is said in words."""
    with pytest.raises(ValueError, match=sentence):
        open_picture(data)


def test_a_lying_header_is_refused_before_decoding():
    """A small file that promises a gigantic picture is not decoded."""
    picture = Image.new("1", (20_000, 20_000))
    with pytest.raises(ValueError, match="more pixels than the 40 million"):
        open_picture(encoded(picture))


def test_png_round_trip():
    """What the app shows is what the model made, grey or coloured."""
    for channels in (1, 3):
        pixels = np.random.default_rng(0).integers(
            0, 256, (channels, 8, 8), dtype=np.uint8
        )
        again = decode_picture(to_png(pixels), (channels, 8, 8))
        np.testing.assert_array_equal(again, pixels)


def test_bad_settings_get_a_sentence(tmp_path):
    """A missing file, a missing column, a filter that keeps nothing."""
    with pytest.raises(FileNotFoundError, match="There is no data set at"):
        load_dataset(DataConfig(path=str(tmp_path / "none.parquet")))
    path = tmp_path / "bare.parquet"
    pd.DataFrame({"id": [1], "image": [encoded(halves())]}).to_parquet(path)
    with pytest.raises(ValueError, match="has no column 'group', 'style'; it has 'id'"):
        load_dataset(DataConfig(path=str(path)))
    with pytest.raises(ValueError, match="No picture of 'glyphs64.parquet' passes"):
        load_dataset(DataConfig(keep=(("style", ("nobody",)),)))
