"""The integer behind every generator: seed, purpose and keys make one number.

Knows no torch, so that rooms without it can say what a draw depends on.
"""

import hashlib


def keyed_seed(seed: int, purpose: str, *keys: int | str) -> int:
    """Return a seed below 2^63 that depends on exactly the given values."""
    text = "\x1f".join([str(seed), purpose, *map(str, keys)])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
