"""Image files that say something of training, as other programs write them."""

import datetime
import io
from functools import cache

import c2pa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from PIL import Image, PngImagePlugin

VOCABULARY = "http://ns.useplus.org/ldf/vocab/"
PACKET = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
    'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
    'rdf:about="" xmlns:plus="http://ns.useplus.org/ldf/xmp/1.0/" '
    'xmlns:tdm="http://www.w3.org/ns/tdmrep/"{}>{}</rdf:Description></rdf:RDF>'
    '</x:xmpmeta><?xpacket end="w"?>'
)


def packet(inside: str = "", attributes: str = "") -> bytes:
    """Return an XMP packet with these elements and attributes."""
    return PACKET.format(f" {attributes}" if attributes else "", inside).encode()


def mining(word: str) -> bytes:
    """Return an XMP packet with a word of PLUS's vocabulary."""
    return packet(f"<plus:DataMining>{VOCABULARY}{word}</plus:DataMining>")


def with_xmp(xmp: bytes | None, kind: str = "PNG", shade: int = 0) -> bytes:
    """Return an image file with an XMP packet, or with none.

    Args:
        xmp: The packet.
        kind: As Pillow calls it.
        shade: Of 255; other pixels for every number.
    """
    image, file, options = Image.new("RGB", (24, 16), (shade, 90, 0)), io.BytesIO(), {}
    if xmp is not None and kind == "PNG":
        options["pnginfo"] = PngImagePlugin.PngInfo()
        options["pnginfo"].add_itxt("XML:com.adobe.xmp", xmp.decode("latin-1"))
    elif kind == "TIFF":
        options["tiffinfo"] = {} if xmp is None else {700: xmp}
    elif xmp is not None:
        options["xmp"] = xmp
    image.save(file, kind, **options)
    return file.getvalue()


def with_credentials(entries: object, kind: str, label: str) -> bytes:
    """Return an image file with signed Content Credentials.

    Args:
        entries: Of the assertion on training; None writes the assertion without them.
        kind: "jpeg", "png" or "webp".
        label: Of the assertion.
    """
    action = {
        "action": "c2pa.created",
        "digitalSourceType": (
            "http://cv.iptc.org/newscodes/digitalsourcetype/digitalCreation"
        ),
    }
    data = {"note": "empty"} if entries is None else {"entries": entries}
    manifest = {
        "claim_generator_info": [{"name": "test", "version": "1"}],
        "assertions": [
            {"label": "c2pa.actions.v2", "data": {"actions": [action]}},
            {"label": label, "data": data},
        ],
    }
    source, made = io.BytesIO(with_xmp(None, kind.upper())), io.BytesIO()
    with c2pa.Builder(manifest) as builder:
        signer = c2pa.Signer.from_info(_signing())
        builder.sign(signer, f"image/{kind}", source, made)
    return made.getvalue()


@cache
def _signing() -> c2pa.C2paSignerInfo:
    """Return a key and the certificates that its own authority gave it."""
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = _certificate("root", root_key, "root", root_key)
    leaf = _certificate("leaf", key, "root", root_key)
    chain = b"".join(c.public_bytes(serialization.Encoding.PEM) for c in (leaf, root))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return c2pa.C2paSignerInfo(b"es256", chain, private, None)


def _certificate(name: str, key, issuer: str, issuer_key) -> x509.Certificate:
    names = [
        x509.Name([
            x509.NameAttribute(NameOID.COMMON_NAME, one),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test"),
        ])
        for one in (name, issuer)
    ]
    own, theirs, ca = key.public_key(), issuer_key.public_key(), name == issuer
    uses = [not ca, False, False, False, False, ca, ca, False, False]
    builder = (
        x509
        .CertificateBuilder(names[1], names[0], own, x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2120, 1, 1))
        .add_extension(x509.BasicConstraints(ca, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(theirs), False
        )
        .add_extension(x509.KeyUsage(*uses), True)
    )
    if not ca:
        use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.EMAIL_PROTECTION])
        builder = builder.add_extension(use, False)
    return builder.sign(issuer_key, hashes.SHA256())
