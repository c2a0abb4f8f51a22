"""Image files of every kind, and what becomes of them on the way to an app.

`mutated_files` makes of whole files damaged ones: bits flipped, bytes overwritten, cut
off, put in, repeated, and two files joined.
"""

import io

import numpy as np
from hypothesis import strategies as st
from PIL import Image, ImageCms

from core.files.images import open_image

NUMBERS = ((2, "big"), (4, "big"), (4, "little"))  # bytes and order, as files have them
LONGEST = 2048 + 2  # pixels of a side of what `open_image` returns


def encoded(picture: Image.Image, kind: str = "PNG", **options) -> bytes:
    """Return an image's file bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def halves(mode: str = "RGB", size: int = 8) -> Image.Image:
    """Return an image whose left half is red and whose right half is blue."""
    picture = Image.new("RGB", (size, size), "blue")
    picture.paste("red", (0, 0, size // 2, size))
    if mode == "LAB":
        spaces = map(ImageCms.createProfile, ("sRGB", "LAB"))
        return ImageCms.profileToProfile(picture, *spaces, outputMode="LAB")
    if mode.startswith("I;16"):
        return picture.convert("I").point(lambda value: value * 257).convert("I;16")
    return picture.convert(mode)


def animation(kind: str) -> bytes:
    """Return a file of two images: red and blue halves, then all white."""
    more = [Image.new("RGB", (8, 8), "white")]
    return encoded(halves(), kind, save_all=True, append_images=more)


def whole_files() -> list[bytes]:
    """Return small files of every kind and mode that are read."""
    colour = ["RGB", "RGBA", "L", "LA", "P", "1"]
    files = [encoded(halves(mode), "PNG") for mode in [*colour, "I;16"]]
    files += [encoded(halves(mode), "TIFF") for mode in [*colour, "CMYK", "LAB", "F"]]
    files += [encoded(halves(mode, 24), "JPEG") for mode in ("RGB", "L", "CMYK")]
    files += [encoded(halves(size=24), "JPEG", progressive=True)]
    files += [encoded(halves(), "TIFF", compression="tiff_lzw")]
    files += [encoded(halves(mode), kind) for mode in "1L" for kind in ("BMP", "PPM")]
    for kind in ("WEBP", "AVIF", "JPEG2000", "GIF", "BMP", "PPM"):
        files.append(encoded(halves(size=24), kind))
    files += [animation(kind) for kind in ("GIF", "PNG", "WEBP", "TIFF", "MPO", "AVIF")]
    turned = Image.Exif()
    turned[0x0112] = 6
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for kind in ("PNG", "JPEG", "WEBP", "TIFF"):
        files.append(encoded(halves(), kind, exif=turned, icc_profile=profile))
    return files


@st.composite
def mutated_files(draw, files: list[bytes]) -> bytes:
    """Return one of the files with one to four things wrong with it."""
    data = bytearray(draw(st.sampled_from(files)))
    for _ in range(draw(st.integers(1, 4))):
        # Most of what a decoder believes stands at the beginning.
        near = st.integers(0, min(len(data), 64))
        at = draw(near | st.integers(0, len(data)))
        what = draw(st.sampled_from(["flip", "write", "cut", "put", "again", "join"]))
        if what == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif what == "write":  # lengths, widths, counts
            width, order = draw(
                st.sampled_from([(2, "big"), (4, "big"), (4, "little")])
            )
            most = 256**width - 1
            number = draw(
                st.sampled_from([0, 1, most, most // 2]) | st.integers(0, most)
            )
            data[at : at + width] = number.to_bytes(width, order)
        elif what == "cut":
            del data[at : draw(st.integers(at, len(data)))]
        elif what == "put":
            data[at:at] = draw(st.binary(max_size=16))
        elif what == "again":
            data[at:at] = data[at : at + 64]
        elif what == "join":
            other = draw(st.sampled_from(files))
            data[at:] = other[draw(st.integers(0, len(other))) :]
    return bytes(data)


def is_read(data: bytes) -> bool:
    """Return whether bytes are read as an image; anything but a sentence fails."""
    try:
        picture = open_image(data)
    except ValueError as error:
        (sentence,) = error.args
        assert sentence.startswith(("The ", "Some ")) and sentence.endswith(".")
        assert "\n" not in sentence and len(sentence) < 300
        return False
    assert picture.mode == "RGB" and 1 <= max(picture.size) <= LONGEST
    assert np.asarray(picture).shape == (picture.height, picture.width, 3)
    return True
