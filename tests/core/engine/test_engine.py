"""What the engine keeps between questions."""

from core.engine.recent import Recent


def test_the_least_recently_asked_goes_first():
    """Kept results are not made again; those beyond the room are."""
    made = []

    def make(key, size=1):
        return recent.get(key, lambda: made.append(key) or [size])

    recent = Recent(2, lambda result: result[0])
    for key in ("a", "b", "a", "c", "a", "b"):
        make(key)
    assert made == ["a", "b", "c", "b"]
    make("large", size=9)  # more than there is room for: stays alone
    make("large")
    make("a")
    assert made[4:] == ["large", "a"]
