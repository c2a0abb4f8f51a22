"""Images whose files say that nobody should train on them."""

from functools import partial
from pathlib import Path

from precompute.imports.selection import Selection
from tests.helpers.opt_outs import mining, packet, with_xmp
from tests.kinds import Case, look

WITHOUT = partial(look, selection=Selection("all", exclude_opted_out=True))


def some_opt_out(folder: Path) -> Path:
    root = folder / "set"
    root.mkdir()
    for number, (name, xmp) in enumerate(
        {
            "plain.png": None,
            "yes.png": mining("DMI-ALLOWED"),
            "no.png": mining("DMI-PROHIBITED-GENAIMLTRAINING"),
            "reserved.jpg": packet("<tdm:reservation>1</tdm:reservation>"),
            "broken.webp": b"<x:xmpmeta <<",
        }.items()
    ):
        kind = {".jpg": "JPEG", ".webp": "WEBP"}.get(Path(name).suffix, "PNG")
        (root / name).write_bytes(with_xmp(xmp, kind, 40 * number))
    return root


def all_opt_out(folder: Path) -> Path:
    for number in range(3):
        data = with_xmp(mining("DMI-PROHIBITED"), "PNG", number)
        (folder / f"{number}.png").write_bytes(data)
    return folder


UNCLEAR = (
    "note: 1 image with metadata on training that cannot be understood: 'broken.webp: "
    "XMP that is not well-formed'. That counts as no opt-out."
)
CASES = [
    Case(
        "training opt-outs",
        "named",
        some_opt_out,
        5,
        says=(
            "images: 5\n",
            "note: 2 training opt-outs: 'no.png: plus:DataMining "
            "DMI-PROHIBITED-GENAIMLTRAINING' and 'reserved.jpg: tdm:reservation 1'. "
            "--exclude-opted-out leaves these images out.",
            UNCLEAR,
        ),
    ),
    Case(
        "training opt-outs",
        "left out",
        some_opt_out,
        {"plain.png": {}, "yes.png": {}, "broken.webp": {}},
        says=("images: 3\n", "These images are left out.", UNCLEAR),
        ask=WITHOUT,
    ),
    Case(
        "training opt-outs",
        "nothing is left",
        all_opt_out,
        refused="No image is left: 3 forbid training",
        ask=WITHOUT,
    ),
]
