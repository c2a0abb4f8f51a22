"""Bytes from anywhere become an upright RGB picture, or a sentence saying why not."""

import io

import numpy as np
from PIL import Image, ImageOps

MAX_PIXELS = 40_000_000  # refused before decoding: a header may promise anything
MAX_BYTES = 20_000_000


def open_picture(data: bytes) -> Image.Image:
    """Return the first frame as an upright RGB picture on white.

    Raises:
        ValueError: If the bytes are not a picture that can be read, in one plain
            sentence.
    """
    if not data:
        raise ValueError(
            "The file is empty. Choose a picture, for example a PNG or JPEG."
        )
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"The file has {len(data) / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB "
            "can be read. Save a smaller copy and choose that."
        )
    try:
        picture = Image.open(io.BytesIO(data))
        if picture.width * picture.height <= MAX_PIXELS:
            picture.load()
            return _on_white(ImageOps.exif_transpose(picture))
    except Image.DecompressionBombError:
        pass  # Pillow's own limit, which is larger
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError) as error:
        raise ValueError(
            "The file could not be read as a picture; it may be damaged or of another "
            "kind. Choose a PNG, JPEG, WebP, GIF, BMP or TIFF file."
        ) from error
    raise ValueError(
        f"The picture has more pixels than the {MAX_PIXELS // 1_000_000} million that "
        "can be read. Save a smaller copy and choose that."
    )


def _on_white(picture: Image.Image) -> Image.Image:
    """Return the picture in RGB; transparency becomes white, 16 bit becomes 8."""
    if picture.mode.startswith(("I", "F")):
        values = np.asarray(picture, dtype=np.float64)
        scale = 255.0 / 65535.0 if values.max() > 255 else 1.0
        picture = Image.fromarray((values * scale).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")


def fit_square(picture: Image.Image, size: int) -> Image.Image:
    """Return the whole picture, centred on white, scaled to `size` x `size` pixels."""
    if picture.size == (size, size):
        return picture
    scale = size / max(picture.size)
    inner = tuple(max(1, round(side * scale)) for side in picture.size)
    resized = picture.resize(inner, Image.Resampling.LANCZOS)
    square = Image.new("RGB", (size, size), "white")
    square.paste(resized, ((size - inner[0]) // 2, (size - inner[1]) // 2))
    return square


def decode_picture(data: bytes, size: tuple[int, int, int]) -> np.ndarray:
    """Return file bytes as uint8 pixels of shape (C, H, W), with C of 1 or 3 and H = W.

    Bytes that are no readable picture are a ValueError, as in `open_picture`.
    """
    channels, height, _ = size
    picture = fit_square(open_picture(data), height)
    if channels == 1:
        return np.asarray(picture.convert("L"), dtype=np.uint8)[None]
    return np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1)


def to_picture(pixels: np.ndarray) -> Image.Image:
    """Return uint8 pixels of shape (C, H, W) as a PIL picture."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def to_png(pixels: np.ndarray) -> bytes:
    """Return uint8 pixels of shape (C, H, W) as PNG file bytes."""
    buffer = io.BytesIO()
    to_picture(pixels).save(buffer, "PNG")
    return buffer.getvalue()
