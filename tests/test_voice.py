"""Product code speaks plainly: texts, docstrings and comments without some phrases."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layers import ROOT, product_files

# Of the voice guide: archaic, inverted or vague; "there is no ..." is plain English.
SHUNNED = re.compile(
    r"foret(?:old|ells?)|as many random|mere likeness|put away|left aside"
    r"|sp(?:eaks?|oke) (?:for|against)|leav\w+ (?:it |them )?away"
    r"|tak\w+ (?:(?:it|them|this \w+) )?away|what counts\b(?! as)|(?:this|the) very "
    r"|nine times of ten|may be nothing|really left out|without chance"
    r"|(?<!there )\b(?:is|are|was|were) no (?!longer|more)"
    r"|in line: |chance does as much|if so\.|\bor else\b"
    r"|made (?:it less likely|no difference)|marked part(?! of it)"
    r"|^(?:all|part) of it$|drawing steps|influence or likeness"
    r"|few or many|so few halves|tested were|not tested by retraining|sizes ×"
    r"|read the order, not|see-through|a random group does|likely than after"
    r"|against random groups|say whether that is much"
    r"|learned firmly|show like things|in every way there is",
    re.IGNORECASE,
)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield every text and comment of some code, each on one line, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        values = [part.value for part in parts if isinstance(part, ast.Constant)]
        text = "".join(value for value in values if isinstance(value, str))
        yield getattr(node, "lineno", 0), " ".join(text.split())


def shunned(source: str) -> list[str]:
    """Return the phrases that some code should not hold, with their lines."""
    return [
        f"{line}: {match.group()}"
        for line, text in texts(source)
        for match in SHUNNED.finditer(text)
    ]


@pytest.mark.parametrize("file", product_files(), ids=lambda file: file.stem)
def test_code_speaks_plainly(file: Path):
    assert shunned(file.read_text()) == [], file.relative_to(ROOT)


@pytest.mark.parametrize(
    "source",
    [
        '"""How it was\nforetold."""',
        'print(f"{1} as many " f"random")',
        "x = 1  # speaks for it",
        '"a" " is no b"',
    ],
)
def test_a_phrase_is_found_wherever_it_stands(source):
    assert shunned(source)


def test_plain_words_pass():
    assert (
        shunned('"There is no lens here; it is no longer than what counts as one."')
        == []
    )
