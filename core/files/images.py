"""Bytes from anywhere become an upright RGB image, or a sentence saying why not.

What a file is, is decided by its content. An image is decoded once, then brought to
RGB block by block and made smaller on the way: whatever a file holds, reading it takes
less than 300 MB (`tests/benchmarks/results/pictures.json`).
"""

import base64
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, ImageCms, ImageOps

MAX_BYTES = 20_000_000
MAX_PIXELS = 50_000_000  # refused before decoding: a header may promise anything
PIXELS_VARIABLE = "AFTERIMAGE_MAX_PIXELS"  # another number in place of MAX_PIXELS

# The kinds that are read, and the share of MAX_PIXELS that each may have: a decoder
# takes from 4 bytes a pixel (PNG) to 25 (JPEG 2000). Not among them are kinds that run
# other programs (EPS), and those that hold an image larger than their header (ICO).
KINDS = {
    "PNG": 1.0,
    "JPEG": 1.0,
    "GIF": 1.0,
    "BMP": 1.0,
    "PPM": 1.0,
    "TIFF": 0.4,
    "WEBP": 0.25,
    "AVIF": 0.25,
    "JPEG2000": 0.2,
}
Image.init()
# How the names of such files end; Pillow's own lists, and what they call a DIB and a
# JPEG's frame, which it knows by other names.
EXTENSIONS = frozenset(
    ending
    for ending, kind in Image.registered_extensions().items()
    if kind in {*KINDS, "MPO", "DIB"}
)
START = 16  # bytes by which Pillow tells what a file may be
PROGRESSIVE = 0.5  # of a JPEG that holds all coefficients until its end
NAMES = "PNG, JPEG, WebP, AVIF, GIF, BMP, TIFF, JPEG 2000 or PPM"

WHITE = (255, 255, 255)
NEAR_WHITE = 228  # of 255 in every channel
TINY = 32  # pixels of the longer side of an image whose pixels can be told apart
SIDE = 1024  # pixels; an image of twice that is made smaller while it is converted
BLOCK = 1 << 20  # pixels that are converted at a time
ORIENTATION = 0x0112  # EXIF

# What the colours of an image in one of these modes may mean.
SPACES = {"GRAY": "L", "RGB ": "RGB", "CMYK": "CMYK", "Lab ": "LAB"}


def max_pixels() -> int:
    """Return the most pixels that an image may have.

    Raises:
        ValueError: If the environment says anything but a number.
    """
    wanted = os.environ.get(PIXELS_VARIABLE, str(MAX_PIXELS))
    if not wanted.isdecimal() or int(wanted) == 0:
        raise ValueError(
            f"{PIXELS_VARIABLE} is '{wanted}'; a whole number of pixels above 0 was "
            "expected. Correct it and start the app again."
        )
    return int(wanted)


def open_image(data: bytes, paper: tuple[int, int, int] = WHITE) -> Image.Image:
    """Return the first frame as an upright RGB image.

    An image of more than two times `SIDE` pixels comes back smaller, with at least
    `SIDE` pixels on its longer side. Colours are those of its profile, in sRGB.

    Args:
        data: The file.
        paper: The colour that transparent parts become.

    Raises:
        ValueError: If the bytes are not an image that can be read, in one plain
            sentence.
    """
    if not data:
        raise ValueError(
            "The file is empty. Choose an image, for example a PNG or JPEG."
        )
    if len(data) > MAX_BYTES:
        raise ValueError(too_large(len(data)))
    most = max_pixels()
    with _plain_errors(most):
        image = Image.open(io.BytesIO(data), formats=list(KINDS))
        progressive = "progressive" in image.info
    # Pillow calls a JPEG with a second image inside, as phones make them, MPO.
    kind = "JPEG" if image.format == "MPO" else image.format
    share = min(KINDS[kind], PROGRESSIVE if progressive else 1.0)
    if image.width * image.height > share * most:
        raise ValueError(_too_many(share * most, kind))
    with _plain_errors(most):
        factor = _factor(image.size)
        # JPEG can be decoded at a half, a quarter or an eighth of its size.
        image.draft(None, tuple(max(1, side // factor) for side in image.size))
        image.load()
        orientation = _orientation(image)
    white = _white_value(image)
    with _plain_errors(most):
        upright = _reduced(image, white, paper)
        upright.getexif()[ORIENTATION] = orientation
        return ImageOps.exif_transpose(upright)


def begins_as_image(start: bytes) -> bool:
    """Return whether a file that begins so is of a kind that is read.

    Args:
        start: At least its first `START` bytes, or all that it has.
    """
    return any(bool(Image.OPEN[kind][1](start[:START])) for kind in KINDS)


def frames_note(data: bytes) -> str:
    """Return which one of several images in a file is read, "" where there is one."""
    try:
        image = Image.open(io.BytesIO(data), formats=list(KINDS))
        several = image.format != "MPO" and getattr(image, "is_animated", False)
    except Exception:  # as in `_plain_errors`; `open_image` says what is wrong
        return ""
    if not several:
        return ""
    one = "page" if image.format == "TIFF" else "frame of an animation"
    return f"the first {one}"


@contextmanager
def _plain_errors(most: int) -> Iterator[None]:
    """Turn any error of a decoder into one plain sentence.

    Yields:
        Nothing.

    Raises:
        ValueError: If the file cannot be read.
    """
    try:
        yield
    except Image.DecompressionBombError:  # Pillow's own limit
        raise ValueError(_too_many(most)) from None
    # Not only OSError: for bytes that are not an image Pillow raises what its parsers
    # happen to meet, from IndexError to struct.error.
    except Exception as error:
        raise ValueError(
            "The file could not be read as an image; it may be damaged or of another "
            f"kind, such as HEIC or SVG. Choose a {NAMES} file."
        ) from error


def too_large(size: int) -> str:
    """Return in a sentence that a file has too many bytes."""
    return (
        f"The file has {size / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB can be "
        "read. Save a smaller copy and choose that."
    )


def _too_many(most: float, kind: str = "") -> str:
    of = f"of a {kind} file like this " if kind else ""
    return (
        f"The image has more pixels than the {most / 1e6:.3g} million that {of}can "
        "be read. Save a smaller copy and choose that."
    )


def _factor(size: tuple[int, int]) -> int:
    """Return how many times smaller an image can be made at once."""
    return max(1, max(size) // SIDE)


def _orientation(image: Image.Image) -> int:
    """Return how the camera was held, 1 for upright."""
    try:
        return image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged facts about an image do not make it unreadable
        return 1


def _white_value(image: Image.Image) -> float:
    """Return the number that stands for white in an image of numbers.

    Whole numbers of 32 bits and fractions have no white of their own: the smallest of
    1 (fractions only), 255 and 65535 that no number exceeds is taken.

    Raises:
        ValueError: If there are numbers beyond 16 bits, or some that are not numbers.
    """
    if image.mode not in ("I", "F"):
        return 65535.0 if image.mode.startswith("I;16") else 255.0
    if image.mode == "I" and image.format in ("PNG", "PPM"):
        return 65535.0  # their decoders say so
    if image.mode == "F" and not np.isfinite(np.asarray(image)).all():
        raise ValueError(
            "Some pixels of the image are not finite numbers. Save it as a PNG or "
            "JPEG and choose that."
        )
    highest = image.getextrema()[1]
    for white in (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0):
        if highest <= white:
            return white
    raise ValueError(
        f"The pixels of the image go up to {highest:g}; numbers up to 65535 (16 "
        "bits) can be read. Save it as a PNG or JPEG and choose that."
    )


def _reduced(
    image: Image.Image, white: float, paper: tuple[int, int, int]
) -> Image.Image:
    """Return a decoded image in RGB, as many times smaller as `_factor` says."""
    factor, to_rgb = _factor(image.size), _colours(image)
    width, height = image.size
    # Blocks end at multiples of the factor, so that they fit together when reduced.
    across = max(factor, BLOCK // min(factor, height) // factor * factor)
    down = max(factor, BLOCK // min(across, width) // factor * factor)
    small = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    for top in range(0, height, down):
        for left in range(0, width, across):
            box = left, top, min(left + across, width), min(top + down, height)
            block = to_rgb(_opaque(image.crop(box), white, paper))
            small.paste(block.reduce(factor), (left // factor, top // factor))
    return small


def _opaque(
    image: Image.Image, white: float, paper: tuple[int, int, int]
) -> Image.Image:
    """Return an image of 8 bits without transparency: what was clear is paper."""
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, dtype=np.float64)
        # Of a grey image of 16 bits one value may be the transparent one.
        clear = values == image.info.get("transparency", -1)
        values = np.where(clear, np.mean(paper), values * (255.0 / white))
        return Image.fromarray(values.clip(0, 255).round().astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, (*paper, 255))
        return Image.alpha_composite(ground, image).convert("RGB")
    if image.mode in SPACES.values():
        return image
    return image.convert("RGB")


def _colours(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Return what turns the colours of an image into RGB.

    A profile that is damaged or of another colour space is passed over, as browsers do.
    """
    data = image.info.get("icc_profile")
    if image.mode == "LAB":
        source = ImageCms.createProfile("LAB")
    elif data:
        source = io.BytesIO(data)
    else:
        return _plain_rgb
    try:
        profile = ImageCms.ImageCmsProfile(source)
        mode = SPACES[profile.profile.xcolor_space]
        if mode != image.mode and {mode, image.mode} & {"CMYK", "LAB"}:
            return _plain_rgb
        transform = ImageCms.buildTransform(
            profile, ImageCms.createProfile("sRGB"), mode, "RGB"
        )
    except (ImageCms.PyCMSError, KeyError, OSError, TypeError, ValueError):
        return _plain_rgb
    return lambda block: ImageCms.applyTransform(block.convert(mode), transform)


def _plain_rgb(image: Image.Image) -> Image.Image:
    return image.convert("RGB")


def fit_square(
    image: Image.Image, size: int, paper: tuple[int, int, int] = WHITE
) -> Image.Image:
    """Return the whole image, centred on paper, scaled to `size` x `size` pixels."""
    if image.size == (size, size):
        return image
    scale = size / max(image.size)
    inner = tuple(max(1, round(side * scale)) for side in image.size)
    resized = image.resize(inner, Image.Resampling.LANCZOS)
    square = Image.new("RGB", (size, size), paper)
    square.paste(resized, ((size - inner[0]) // 2, (size - inner[1]) // 2))
    return square


def decode_image(data: bytes, size: tuple[int, int, int]) -> np.ndarray:
    """Return file bytes as uint8 pixels of shape (C, H, W), with C of 1 or 3 and H = W.

    Bytes that are not a readable image raise ValueError, as in `open_image`.
    """
    channels, height, _ = size
    image = fit_square(open_image(data), height)
    if channels == 1:
        return np.asarray(image.convert("L"), dtype=np.uint8)[None]
    return np.asarray(image, dtype=np.uint8).transpose(2, 0, 1)


JPEG = b"\xff\xd8"  # how such a file begins


def image_of(pixels: np.ndarray) -> Image.Image:
    """Return uint8 pixels of shape (C, H, W), with C of 1 or 3, as an image."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def png(pixels: np.ndarray) -> bytes:
    """Return uint8 pixels of shape (C, H, W) as a PNG file."""
    file = io.BytesIO()
    image_of(pixels).save(file, "PNG")
    return file.getvalue()


def on_white(pixels: np.ndarray) -> np.ndarray:
    """Return an image whose near-white ground is white, to be shown and not measured.

    Models draw white with a faint grain, which a screen shows as dirt. Where most of
    the edge is near white, whatever is near white becomes white.

    Args:
        pixels: uint8, shape (C, H, W).
    """
    darkest = pixels.min(0)
    edge = np.concatenate([darkest[0], darkest[-1], darkest[:, 0], darkest[:, -1]])
    if np.median(edge) < NEAR_WHITE:
        return pixels
    return np.where(darkest >= NEAR_WHITE, np.uint8(255), pixels)


def enlarged(data: bytes, size: int = 512) -> bytes:
    """Return a small image at a size where a screen shows it without blur.

    Args:
        data: An image file.
        size: Pixels of the longer side; larger images stay as they are.
    """
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if max(image.size) >= size:
        return data
    times = size / max(image.size)
    target = (round(image.width * times), round(image.height * times))
    file = io.BytesIO()
    # A PNG of it takes a dozen times as long, which a visitor waits for, and five times
    # the bytes; at this quality nobody sees which it is.
    large = image.resize(target, Image.Resampling.LANCZOS)
    large.save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def framed(data: bytes, colour: str = "#8a9099") -> bytes:
    """Return an image file as a PNG with a thin frame, to stand on any ground."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    file = io.BytesIO()
    width = max(1, max(image.size) // 32)
    ImageOps.expand(image, width, colour).save(file, "PNG")
    return file.getvalue()


def preview(pixels: np.ndarray, size: int = 256) -> bytes:
    """Return uint8 pixels (C, H, W) as a small JPEG file of a longer side of `size`.

    Tiny images keep their pixels, so that they are not taken for blurred ones.
    """
    image = image_of(pixels)
    tiny = max(image.size) <= TINY
    way = Image.Resampling.NEAREST if tiny else Image.Resampling.LANCZOS
    times = size / max(image.size)
    target = (round(image.width * times), round(image.height * times))
    file = io.BytesIO()
    image.resize(target, way).save(file, "JPEG", quality=90)
    return file.getvalue()


def data_uri(data: bytes) -> str:
    """Return a PNG or JPEG file as text that an image element can show."""
    kind = "jpeg" if data.startswith(JPEG) else "png"
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()
