"""The most influential training images as XMP, to travel inside a card.

Not signed: who changes the image can change the list. Content Credentials would need a
key. Numbers are those of `attribute`, and a rank says how they are ordered.
"""

import re
from xml.etree import ElementTree

import numpy as np
from PIL.PngImagePlugin import PngInfo

from core.answers import Answer, Query
from core.explorer.explorer import Explorer
from core.files.texts import shortened
from core.report import reading

COUNT = 10  # images in the list
KEYWORD = "XML:com.adobe.xmp"  # of the text in a PNG that is XMP
NAMESPACES = {
    "x": "adobe:ns:meta/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "xmp": "http://ns.adobe.com/xap/1.0/",
    "afterimage": "urn:afterimage:ingredients/1.0/",
}
for _prefix, _address in NAMESPACES.items():
    ElementTree.register_namespace(_prefix, _address)
BEGIN = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
END = '<?xpacket end="r"?>'
NO_CHARACTERS = re.compile("[\ufffe\uffff]")  # XML has none of these


def png_info(explorer: Explorer, query: Query, answer: Answer) -> PngInfo:
    """Return what makes Pillow write the ingredients into a PNG file."""
    info = PngInfo()
    info.add_itxt(KEYWORD, ingredients(explorer, query, answer))
    return info


def ingredients(explorer: Explorer, query: Query, answer: Answer) -> str:
    """Return an XMP packet with what an answer says of its image.

    The images are those of its first row, at most `COUNT`: those that helped, or those
    that are most alike.

    Args:
        explorer: The collection.
        query: The image that was asked about.
        answer: What is shown of it.
    """
    root = ElementTree.Element(_name("x:xmpmeta"))
    rdf = ElementTree.SubElement(root, _name("rdf:RDF"))
    about = ElementTree.SubElement(
        rdf,
        _name("rdf:Description"),
        {
            _name("rdf:about"): "",
        },
    )
    _add(about, "xmp:CreatorTool", "Afterimage")
    strip = reading.strips(answer, COUNT)[0]
    for name, value in {
        "image": query.description,
        "collection": explorer.title,
        "fingerprint": explorer.fingerprint,
        "lens": explorer.titled(answer.lens),
        "meaning": strip.title,
    }.items():
        _add(about, f"afterimage:{name}", value)
    holder = ElementTree.SubElement(about, _name("afterimage:ingredients"))
    ordered = ElementTree.SubElement(holder, _name("rdf:Seq"))
    for rank, place in enumerate(map(int, strip.positions), 1):
        item = ElementTree.SubElement(
            ordered,
            _name("rdf:li"),
            {
                _name("rdf:parseType"): "Resource",
            },
        )
        facts = {"rank": rank, **_facts(explorer, answer, place)}
        for name, value in facts.items():
            _add(item, f"afterimage:{name}", value)
    text = ElementTree.tostring(root, encoding="unicode")
    return f"{BEGIN}{text}{END}"


def _facts(explorer: Explorer, answer: Answer, place: int) -> dict[str, object]:
    """Return what is said of one image; what is not known is left out."""
    example = int(answer.example_ids[place])
    kind = answer.lens.kind  # "influence", "attribution" or "similarity"
    facts = {
        "exampleId": example,
        "name": ", ".join(explorer.examples.caption(example)),
        kind: repr(float(answer.scores[place])),
    }
    if np.isfinite(error := answer.standard_errors[place]):
        facts["standardError"] = repr(float(error))
    if column := explorer.licence_column:
        facts["licence"] = explorer.examples.table.at[example, column]
    return {**facts, "credit": explorer.credit(example)}


def _add(parent: ElementTree.Element, name: str, value: object) -> None:
    text = NO_CHARACTERS.sub("\ufffd", shortened(value, 500))
    ElementTree.SubElement(parent, _name(name)).text = text


def _name(short: str) -> str:
    """Return a name such as "rdf:li" as ElementTree spells it."""
    prefix, name = short.split(":")
    return f"{{{NAMESPACES[prefix]}}}{name}"
