"""What files say against training, in every vocabulary and kind of file."""

import subprocess
import sys
import time
import zlib

import pytest

from core.data.opt_outs import (
    ALLOWING,
    FORBIDDING,
    MOST_BYTES,
    TrainingWish,
    training_wish,
)
from tests.helpers.opt_outs import (
    VOCABULARY,
    mining,
    packet,
    with_credentials,
    with_xmp,
)

NOTHING = TrainingWish()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "AVIF"])
def test_every_word_of_the_vocabulary_is_told_apart(kind):
    assert training_wish(with_xmp(None, kind)) == NOTHING
    assert training_wish(with_xmp(packet(), kind)) == NOTHING
    for word in ALLOWING:
        assert training_wish(with_xmp(mining(word), kind)) == NOTHING
    for word in FORBIDDING:
        found = training_wish(with_xmp(mining(word), kind))
        assert found == TrainingWish(f"plus:DataMining {word}")


@pytest.mark.parametrize(
    ("xmp", "found"),
    [
        (packet(attributes='plus:DataMining="DMI-PROHIBITED"'), "plus:DataMining"),
        (
            packet(f'<plus:DataMining rdf:resource="{VOCABULARY}DMI-PROHIBITED"/>'),
            "plus:DataMining",
        ),
        (
            packet(
                "<plus:DataMining><rdf:Bag><rdf:li>DMI-ALLOWED</rdf:li><rdf:li>"
                "DMI-PROHIBITED</rdf:li></rdf:Bag></plus:DataMining>"
            ),
            "plus:DataMining",
        ),
        (packet("<tdm:reservation>1</tdm:reservation>"), "tdm:reservation 1"),
        (packet(attributes='tdm:reservation="1"'), "tdm:reservation 1"),
        (
            packet(attributes='tdm:reservation="1"').replace(b"tdmrep/", b"tdmrep#"),
            "tdm:reservation 1",
        ),
        (packet("<tdm:reservation>0</tdm:reservation>"), ""),
        (packet("<tdm:policy>1</tdm:policy>"), ""),
        # The prefix is free, the address is not.
        (
            mining("DMI-PROHIBITED")
            .replace(b"plus:", b"p:")
            .replace(b":plus=", b":p="),
            "plus:DataMining",
        ),
        (mining("DMI-PROHIBITED").replace(b"useplus.org/ldf/xmp", b"other.org/x"), ""),
    ],
)
def test_xmp_is_read_in_all_its_spellings(xmp, found):
    wish = training_wish(with_xmp(xmp, "JPEG"))
    assert wish.forbids.startswith(found) and bool(wish.forbids) == bool(found)
    assert wish.unclear == ""


BOMB = (
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(
        b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(12)
    )
    + b"]>"
)


@pytest.mark.parametrize(
    ("xmp", "words"),
    [
        (b"<x:xmpmeta <<<", "XMP that is not well-formed"),
        (b"", None),
        (packet("<tdm:reservation>1"), "XMP that is not well-formed"),
        (b"<?xml version='1.0' encoding='klingon'?>" + packet(), "XMP that is not"),
        (BOMB + packet("<plus:DataMining>&m;</plus:DataMining>"), "a document type"),
        (
            b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
            + packet("<plus:DataMining>&a;</plus:DataMining>"),
            "a document type",
        ),
        (mining("DMI-MAYBE"), "plus:DataMining http://ns.useplus.org"),
        (packet("<tdm:reservation>yes\n\x1fno</tdm:reservation>"), "XMP that is not"),
        (packet("<tdm:reservation>yes</tdm:reservation>"), "tdm:reservation yes"),
        (b"<a>" * 20_000, "XMP that is not well-formed"),
    ],
)
def test_nonsense_is_named_and_forbids_nothing(xmp, words):
    started = time.perf_counter()
    wish = training_wish(with_xmp(xmp, "JPEG"))
    assert wish.forbids == "" and time.perf_counter() - started < 2
    assert words is None or words in wish.unclear, wish


def test_xmp_of_any_size_is_not_parsed():
    huge = with_xmp(packet(" " * (MOST_BYTES + 1)), "TIFF")
    assert training_wish(huge) == TrainingWish(unclear="XMP of more than 1 MB")


def chunk(name: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(name + content).to_bytes(4)
    return len(content).to_bytes(4) + name + content + checksum


def test_xmp_behind_the_pixels_of_a_png_is_found_also_if_compressed():
    """Where some programs put it, to write the pixels first."""
    body, end = with_xmp(None)[:-12], with_xmp(None)[-12:]
    for flags, text in ((b"\0\0", bytes), (b"\1\0", zlib.compress)):
        xmp = text(mining("DMI-PROHIBITED"))
        behind = chunk(b"iTXt", b"XML:com.adobe.xmp\0" + flags + b"\0\0" + xmp)
        assert training_wish(body + behind + end).forbids


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_content_credentials_are_read(kind):
    label, use = "cawg.training-mining", {"use": "notAllowed"}
    forbidden = with_credentials({"cawg.ai_generative_training": use}, kind, label)
    expected = f"{label} cawg.ai_generative_training notAllowed"
    assert training_wish(forbidden) == TrainingWish(expected)
    allowed = {"cawg.ai_training": {"use": "allowed"}, "cawg.ai_inference": use}
    assert training_wish(with_credentials(allowed, kind, label)) == NOTHING


def test_uses_that_a_program_cannot_judge():
    """A constraint counts as a prohibition, a word of no vocabulary is named."""
    label = "c2pa.training-mining"
    found = training_wish(
        with_credentials({"c2pa.data_mining": {"use": "constrained"}}, "jpeg", label)
    )
    assert found == TrainingWish(f"{label} c2pa.data_mining constrained")
    odd = {"c2pa.ai_training": {"use": "perhaps"}}
    found = training_wish(with_credentials(odd, "jpeg", label))
    assert found == TrainingWish(unclear=f"{label} c2pa.ai_training perhaps")
    found = training_wish(with_credentials(None, "jpeg", label))
    assert found == TrainingWish(unclear=f"{label} without entries")


def test_damaged_credentials_end_in_words():
    label, use = "cawg.training-mining", {"use": "notAllowed"}
    data = with_credentials({"cawg.data_mining": use}, "jpeg", label)
    assert training_wish(data).forbids
    found = set()
    for start in range(0, len(data), 97):
        torn = bytearray(data)
        torn[start : start + 8] = b"\xff\x00\xff\x7f" * 2
        found.add(training_wish(bytes(torn)).unclear)
    assert "Content Credentials that cannot be read" in found


def test_plain_images_load_no_library(tmp_path):
    """Of Content Credentials: it is large, and few files have any."""
    (tmp_path / "plain.png").write_bytes(with_xmp(mining("DMI-ALLOWED")))
    words = (
        "import sys; from pathlib import Path; from core.data import opt_outs; "
        "opt_outs.training_wish(Path(sys.argv[1]).read_bytes()); "
        "assert 'c2pa' not in sys.modules"
    )
    program = [sys.executable, "-c", words, str(tmp_path / "plain.png")]
    subprocess.run(program, check=True)
