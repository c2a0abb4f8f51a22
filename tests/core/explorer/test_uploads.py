"""Uploads stay within bounds, however many are sent, and go with their visitor."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from core.explorer.uploads import PATIENCE, Uploads
from pages.parts import served

MB = 10**6


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Return its time."""
        return self.now


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 12), st.booleans()
        )
    )
)
def test_no_sequence_of_uploads_passes_the_bounds(sent):
    """Of one visitor in number and bytes, of all in bytes; what went was freed once."""
    uploads, freed, kept = Uploads(3, 20, 30), Counter(), Counter()
    for number, (visitor, name, size, held) in enumerate(sent):
        label = f"{visitor}{name}"
        data = bytes([number % 256]) * size if held else None
        kept[label] = 1
        replaced = freed.pop(label, 0)
        assert replaced in (0, 1)
        uploads.keep(
            visitor, label, size, data, lambda label=label: freed.update([label])
        )
        for one in "abc":
            own = [key for key in uploads._kept if key[0] == one]
            total = sum(uploads._kept[key].size for key in own)
            assert len(own) <= 3 and (total <= 20 or len(own) == 1)
        assert uploads.bytes <= 30 or len(uploads._kept) == 1
        assert uploads.find(visitor, label) == data  # the newest stays
        assert uploads.find("somebody else", label) is None
    there = {name for _, name in uploads._kept}
    assert there | set(freed) == set(kept) and not there & set(freed)
    assert set(freed.values()) <= {1}


def test_uploads_go_when_their_visitor_was_away_for_a_while():
    """A page that is loaded again keeps them; others' stay."""
    clock, freed = Clock(), []
    uploads = Uploads(clock=clock)
    for visitor in ("goes", "stays", "comes back"):
        uploads.keep(
            visitor, "x", MB, b"x", lambda visitor=visitor: freed.append(visitor)
        )
    there = {"stays"}
    uploads.free_those_gone(there.__contains__)
    clock.now = PATIENCE - 1
    there.add("comes back")
    uploads.free_those_gone(there.__contains__)
    there.remove("comes back")
    clock.now = PATIENCE + 1
    uploads.free_those_gone(there.__contains__)
    assert freed == ["goes"] and uploads.bytes == 2 * MB
    assert uploads.find("goes", "x") is None
    assert uploads.find("comes back", "x") == b"x"


class Streamlit:
    """Stands for Streamlit's server and its store of uploads."""

    def __init__(self):
        """Hold nothing."""
        self.store: dict[tuple[str, str], int] = {}
        self.uploaded_file_mgr = self

    async def __call__(self, scope, receive, send):
        """Take a file as Streamlit does, which bounds nothing but its size."""
        *_, visitor, name = scope["path"].split("/")
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body")
        if scope["method"] == "DELETE":
            self.store.pop((visitor, name), None)
        elif scope["method"] == "PUT":
            self.store[visitor, name] = len(body)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def remove_file(self, visitor: str, name: str) -> None:
        """Let a file go."""
        self.store.pop((visitor, name), None)


@pytest.fixture
def streamlit(monkeypatch) -> Streamlit:
    """Return the stand-in, with uploads of its own beside it."""
    streamlit, uploads = Streamlit(), Uploads()
    monkeypatch.setattr(served.runtime, "get_instance", lambda: streamlit)
    monkeypatch.setattr(served, "uploads", lambda: uploads)
    return streamlit


def test_the_server_keeps_no_more_of_a_visitor_than_the_bounds_say(streamlit):
    """Sixty files of 9.9 MB, with and without a page that looks at them."""
    client = TestClient(served.Guard(streamlit))
    for number in range(60):
        place = f"/_stcore/upload_file/visitor/{number}"
        assert client.put(place, content=bytes(9_900_000)).status_code == 204
    assert [name for _, name in streamlit.store] == ["57", "58", "59"]
    assert served.uploads().bytes == 3 * 9_900_000
    for number in range(40):  # many visitors
        place = f"/app/_stcore/upload_file/another-{number}/1"
        client.put(place, content=bytes(9_900_000))
    assert sum(streamlit.store.values()) <= 256 * MB
    client.delete("/app/_stcore/upload_file/another-39/1")
    assert served.uploads().bytes == sum(streamlit.store.values())
    served.uploads().free_those_gone(lambda visitor: False)
    served.uploads()._clock = lambda: float("inf")
    served.uploads().free_those_gone(lambda visitor: False)
    assert not streamlit.store and not served.uploads().bytes


def test_too_many_uploads_at_once_are_asked_to_wait(streamlit):
    """Of one visitor, and of all; one that ended makes room."""
    guard = served.Guard(streamlit)
    client = TestClient(guard)
    place = "/_stcore/upload_file/visitor/1"
    guard._under_way["visitor"] = served.AT_ONCE
    refused = client.put(place, content=b"x")
    assert refused.status_code == 429
    assert refused.text == "Other uploads are on their way. Try again in a moment."
    guard._under_way.clear()
    assert client.put(place, content=b"x").status_code == 204
    guard._under_way["others"] = served.AT_ONCE_IN_ALL
    assert client.put(place, content=b"x").status_code == 429
    assert dict(guard._under_way) == {"others": served.AT_ONCE_IN_ALL}


def test_an_upload_that_never_ends_is_ended(streamlit, monkeypatch):
    """And takes no place from others."""
    monkeypatch.setattr(served, "LONGEST_UPLOAD", 0.05)

    async def stuck(scope, receive, send):
        await asyncio.sleep(60)

    guard = served.Guard(stuck)
    found = TestClient(guard).put("/_stcore/upload_file/visitor/1", content=b"x")
    assert found.status_code == 408 and "took longer than" in found.text
    assert not guard._under_way and not served.uploads().bytes


@pytest.mark.parametrize(
    ("origin", "foreign"),
    [
        (None, False),
        ("http://museum.example:8501", False),
        ("https://museum.example:8501", False),
        ("http://localhost:9000", False),
        ("http://museum.example", True),
        ("http://evil.example:8501", True),
        ("null", True),
    ],
)
def test_only_this_site_s_pages_may_ask(origin, foreign):
    """The websocket of another site is refused before anything is looked up for it."""
    headers = {"host": "museum.example:8501"}
    headers |= {} if origin is None else {"origin": origin}
    assert served.is_foreign(served.Headers(headers)) is foreign
