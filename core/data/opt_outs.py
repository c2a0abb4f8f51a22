"""What an image file says against training on it: XMP and Content Credentials.

Three vocabularies are read: `plus:DataMining` of PLUS, which is also IPTC's field;
`tdm:reservation` of W3C's TDM Reservation Protocol; and the assertion
`training-mining` of C2PA and, since its version 2, of CAWG. Signatures are not
checked: whoever bothers to forbid training is taken at their word. Nothing is fetched.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from xml.parsers import expat

from PIL import Image

from core.files.images import KINDS
from core.files.texts import shortened

MOST_BYTES = 1 << 20  # of XMP; a JPEG has room for 64 kB
# What stands in a file that may hold XMP, so that others are not opened again.
XMP_SIGNS = (b"XML:com.adobe.xmp", b"ns.adobe.com/xap/1.0/", b"XMP ", b"<x:xmpmeta")
XMP_SIGNS += (b"22-rdf-syntax-ns#",)
RDF_RESOURCE = "http://www.w3.org/1999/02/22-rdf-syntax-ns# resource"
DATA_MINING = "http://ns.useplus.org/ldf/xmp/1.0/ DataMining"
# The protocol has one address for XMP and another for EPUB; both are met.
RESERVATIONS = (
    "http://www.w3.org/ns/tdmrep/ reservation",
    "http://www.w3.org/ns/tdmrep# reservation",
)
ALLOWING = {"DMI-UNSPECIFIED", "DMI-ALLOWED"}
FORBIDDING = {
    "DMI-PROHIBITED",
    "DMI-PROHIBITED-AIMLTRAINING",
    "DMI-PROHIBITED-GENAIMLTRAINING",
    "DMI-PROHIBITED-EXCEPTSEARCHENGINEINDEXING",
    "DMI-PROHIBITED-SEECONSTRAINT",
    "DMI-PROHIBITED-SEEEMBEDDEDRIGHTSEXPR",
    "DMI-PROHIBITED-SEELINKEDRIGHTSEXPR",
}
ASSERTION = re.compile(r"(c2pa|cawg)\.training-mining(__\d+)?")
# The entry that is not among them, `ai_inference`, is about models that are trained.
USES = {"data_mining", "ai_training", "ai_generative_training"}
# What training needs and a constraint leaves open, a program cannot judge.
USE_FORBIDS = {"allowed": False, "notAllowed": True, "constrained": True}
OFFLINE = {
    "verify": {
        "verify_after_reading": False,
        "verify_trust": False,
        "ocsp_fetch": False,
        "remote_manifest_fetch": False,
    },
    "core": {"allowed_network_hosts": []},
}
TYPES = ("JPEG", "PNG", "WEBP", "TIFF", "AVIF", "GIF")  # that may hold credentials


@dataclass(frozen=True)
class TrainingWish:
    """What a file says of training.

    Attributes:
        forbids: What forbids it, in the words of the vocabularies; "" if nothing does.
        unclear: What could not be understood, in words; "" if all was.
    """

    forbids: str = ""
    unclear: str = ""


NOTHING_SAID = TrainingWish()


def training_wish(data: bytes) -> TrainingWish:
    """Return what a file says of training.

    Args:
        data: An image file that can be read.
    """
    has_xmp = any(sign in data for sign in XMP_SIGNS)
    if not has_xmp and b"c2pa" not in data:
        return NOTHING_SAID
    forbids, unclear = [], []
    for read in (_said_in_xmp,) * has_xmp + (_said_in_credentials,):
        try:
            for forbidden, words in read(data):
                (forbids if forbidden else unclear).append(words)
        except ValueError as error:
            unclear.append(str(error))
    return TrainingWish(
        ", ".join(dict.fromkeys(forbids)), ", ".join(dict.fromkeys(unclear))
    )


# --- XMP -----------------------------------------------------------------------------


def _said_in_xmp(data: bytes) -> Iterator[tuple[bool, str]]:
    """Yield what is forbidden, as (True, words), and not understood, (False, words).

    XMP that cannot be read raises the ValueError of `xmp_values`.
    """
    packet = xmp_packet(data)
    if packet is None:
        return
    for name, value in xmp_values(packet, {DATA_MINING, *RESERVATIONS}):
        if name == DATA_MINING:
            word = value.rstrip("/").rpartition("/")[2].upper()
            if word in FORBIDDING:
                yield True, f"plus:DataMining {word}"
            elif word not in ALLOWING:
                yield False, f"plus:DataMining {shortened(value, 50)}"
        elif value != "0":
            yield value == "1", f"tdm:reservation {shortened(value, 50)}"


def xmp_packet(data: bytes) -> bytes | None:
    """Return the XMP of an image file, None if it has none."""
    try:
        image = Image.open(io.BytesIO(data), formats=list(KINDS))
        if "xmp" not in image.info and image.format == "PNG":
            image.load()  # it may stand behind the pixels
        packet = image.info.get("xmp")
    except Exception:  # as in `core.files.images`: what parsers happen to meet
        return None
    packet = packet.encode() if isinstance(packet, str) else packet
    return packet if isinstance(packet, bytes) else None


def xmp_values(packet: bytes, names: set[str]) -> list[tuple[str, str]]:
    """Return the (name, value) of properties, each word of a list by itself.

    A document type is refused, and with it every entity that it could define: nothing
    is expanded and nothing is fetched.

    Args:
        packet: XMP, as a file holds it.
        names: Of the properties, an address and a name with a space between.

    Raises:
        ValueError: If it is too large or cannot be read, in words.
    """
    if len(packet) > MOST_BYTES:
        raise ValueError(f"XMP of more than {MOST_BYTES / 1e6:.0f} MB")
    found, within, texts = [], [], []

    def start(name: str, attributes: dict[str, str]) -> None:
        found.extend((key, attributes[key]) for key in attributes if key in names)
        if name in names:
            within.append(name)
        if within and RDF_RESOURCE in attributes:
            texts.append(attributes[RDF_RESOURCE])
        texts.append(" ")  # between the items of a list

    def end(name: str) -> None:
        texts.append(" ")
        if within and name == within[-1]:
            found.extend((name, word) for word in "".join(texts).split())
            within.pop()
        if not within:
            texts.clear()

    def refuse(*_: object) -> None:
        raise ValueError("XMP with a document type")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: within and texts.append(text)
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(packet.strip(b"\0 \r\n\t"), True)
    except (expat.ExpatError, LookupError, UnicodeError):
        raise ValueError("XMP that is not well-formed") from None
    return [(name, value.strip()) for name, value in found]


# --- Content Credentials -------------------------------------------------------------


def _said_in_credentials(data: bytes) -> Iterator[tuple[bool, str]]:
    """Yield the same as `_said_in_xmp`, of the manifest that is about this file.

    Raises:
        ValueError: If the Content Credentials cannot be read, in words.
    """
    if b"c2pa" not in data or (kind := _credentials_type(data)) is None:
        return
    import c2pa  # loads a library of 23 MB, which few files need

    try:
        reader = c2pa.Reader.try_create(kind, io.BytesIO(data), context=_offline())
        if reader is None:  # the letters stood there by chance
            return
        with reader:
            manifest = reader.get_active_manifest() or {}
        assertions = list(manifest.get("assertions", []))
    except Exception:  # a library's own, for files from anywhere
        raise ValueError("Content Credentials that cannot be read") from None
    for assertion in assertions:
        label = str(assertion.get("label", ""))
        if ASSERTION.fullmatch(label):
            content = assertion.get("data")
            entries = content.get("entries") if isinstance(content, dict) else None
            yield from _said_in_entries(label.split("__")[0], entries)


def _said_in_entries(label: str, entries: object) -> Iterator[tuple[bool, str]]:
    if not isinstance(entries, dict):
        yield False, f"{label} without entries"
        return
    for name, entry in entries.items():
        if name.rpartition(".")[2] not in USES:
            continue
        use = entry.get("use") if isinstance(entry, dict) else entry
        use = use if isinstance(use, str) else ""
        if USE_FORBIDS.get(use, True):
            yield use in USE_FORBIDS, f"{label} {shortened(f'{name} {use}', 50)}"


def _credentials_type(data: bytes) -> str | None:
    try:
        image = Image.open(io.BytesIO(data), formats=TYPES)
    except Exception:  # of a kind that holds none
        return None
    return f"image/{'jpeg' if image.format == 'MPO' else image.format.lower()}"


@cache
def _offline():
    """Return what keeps the library from the network and from judging signatures."""
    import c2pa

    return c2pa.Context.from_dict(OFFLINE)
