"""Names and contents of files, made into text that everything else can hold.

A name on a disk is any bytes; in a table, in JSON and on a page it has to be Unicode.
Knows nothing of what the names are of.
"""

import codecs
import hashlib
import os

LONGEST = 255  # bytes of a name on a disk
SUFFIX = 16  # bytes that a suffix may have and be kept where a name is cut
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decoded(data: bytes) -> str:
    """Return the text in a file: UTF-8, or what the mark at its beginning says.

    Bytes that are not such text are a UnicodeDecodeError.
    """
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding)
    return data.decode("utf-8")


def plain_text(text: str) -> str:
    r"""Return a text in whole Unicode; bytes that are none become `\xe9` in letters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
        try:  # what stands for a byte becomes that byte
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half of a pair, which no byte stands behind
            pass
        return data.decode("utf-8", "backslashreplace")
    return text


def storable(name: str) -> str:
    """Return the name under which a disk can hold a file of an archive.

    A name that is too long is cut, and told from others by a hash of what comes before
    its suffix, so that a caption stays beside its image.
    """
    if any(0xD800 <= ord(letter) < 0xDC80 for letter in name) or any(
        0xDCFF < ord(letter) < 0xE000 for letter in name
    ):
        name = plain_text(name)
    if len(os.fsencode(name)) <= LONGEST:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(os.fsencode(suffix)) > SUFFIX:
        stem, dot, suffix = name, "", ""
    digest = hashlib.sha256(os.fsencode(stem)).hexdigest()[:12]
    kept = os.fsencode(stem)[: LONGEST - SUFFIX - 1 - len(digest) - 1]
    return f"{kept.decode('utf-8', 'ignore')}-{digest}{dot}{suffix}"
