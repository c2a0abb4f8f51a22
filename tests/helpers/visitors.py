"""Visitors of a running app, at the level of its websocket: what a browser would show.

A visitor opens an address, lets the page's timers run as a browser does, clicks, goes
to other pages and back, uploads, and goes away. One process can be twenty of them,
which browsers on this machine could not. An address is read when a tab opens; whoever
types another one gets a new page, so further questions are asked by what a page offers.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import ClientConnection, connect

from pages.parts.served import SORRY

BOUNDARY = "a-part-ends-here"


def offering(option: str) -> Callable:
    """Return what says whether an element has an option."""
    return lambda one: option in [choice.content for choice in one.options]


@dataclass
class Visitor:
    """One open page.

    Attributes:
        address: Of the app, such as "http://127.0.0.1:8501".
        said: Every text of a progress bar, once, in order.
        elements: What the page shows, by place.
        errors: Tracebacks, and apologies for them, that were shown.
        session: The name that the server gave to this visit.
    """

    address: str
    said: list[str] = field(default_factory=list)
    elements: dict[tuple, Delta] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    session: str = ""

    def __post_init__(self):
        """Connect; nothing is asked yet."""
        place = self.address.replace("http", "ws", 1) + "/_stcore/stream"
        self._stack = ExitStack()
        self._socket: ClientConnection = self._stack.enter_context(
            connect(place, subprotocols=["streamlit"], max_size=None)
        )
        self._link, self._page, self._hash = "", "", ""
        self._pages: dict[str, str] = {}  # their names in the address -> Streamlit's
        self._history: list[tuple[str, str]] = []  # page and link of each step
        self._timers: dict[str, float] = {}  # fragment -> seconds between its runs
        self._due: dict[str, float] = {}
        self._running = False

    @property
    def link(self) -> str:
        """What the address names now, after its question mark."""
        return self._link

    @property
    def page(self) -> str:
        """The page that is open, as its address names it."""
        names = {number: name for name, number in self._pages.items()}
        return names.get(self._hash, self._page)

    def open(self, link: str, page: str = "") -> None:
        """Open a link, such as "sample=3&lenses=ekfac.loss", on a page; the first step.

        Raises:
            ValueError: If the tab is open already: the app reads no second address.
        """
        if self._history or self._running:
            raise ValueError("This tab is open. Close it, or ask by what it offers.")
        self._link, self._page = link, page
        self._run()

    def click(self, label: str) -> None:
        """Click the button of that label that the page shows."""
        button = self._shown("button", lambda one: one.label == label)
        state = WidgetState(id=button.id, trigger_value=True)
        self._run(state)

    def choose(self, option: str) -> None:
        """Click one of several options that stand side by side."""
        group = self._shown("button_group", offering(option))
        state = WidgetState(id=group.id)
        state.string_array_value.data.append(option)
        self._run(state)

    def offers(self, option: str) -> bool:
        """Return whether the page shows an option among others."""
        return self._has("button_group", offering(option))

    @property
    def offers_upload(self) -> bool:
        """Whether the page shows the form for an image of one's own."""
        return self._has("file_uploader", lambda one: True)

    def pictures(self, title: str) -> list[int]:
        """Return the numbers of the images in all strips of a title."""
        return [
            tile["id"]
            for _, strip in self._strips()
            if strip["title"] == title
            for tile in strip["tiles"]
        ]

    def pick(self, title: str, picture: int) -> None:
        """Click an image in a strip."""
        component = next(
            component
            for component, strip in self._strips()
            if strip["title"] == title
            and any(tile["id"] == picture for tile in strip["tiles"])
        )
        state = WidgetState(id=f"$$STREAMLIT_INTERNAL_KEY_{component}__events")
        event = {"event": "picked", "value": picture}
        state.json_trigger_value = json.dumps([event])
        self._run(state)

    def go(self, page: str) -> None:
        """Follow the link to a page at the top, such as "groups"."""
        self._history.append((self._hash, self._link))
        self._hash, self._link = self._pages[page], ""
        self._run()

    def back(self) -> bool:
        """Go back as the browser does, which tells the page so; False at the first."""
        if not self._history:
            return False
        self._hash, self._link = self._history.pop()
        message = BackMsg()
        message.rerun_script.is_history_navigation = True
        self._run(message=message)
        return True

    def upload(self, data: bytes, name: str = "mine.png") -> int:
        """Send a file to the server, as the form does; return the HTTP status."""
        health = urllib.request.urlopen(f"{self.address}/_stcore/health")
        cookie = health.headers["Set-Cookie"].partition(";")[0]
        body = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; '
            f'filename="{name}"\r\nContent-Type: image/png\r\n\r\n'
        ).encode()
        request = urllib.request.Request(
            f"{self.address}/_stcore/upload_file/{self.session}/{name}",
            method="PUT",
            data=body + data + f"\r\n--{BOUNDARY}--\r\n".encode(),
            headers={
                "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
                "Cookie": cookie,
                "X-Xsrftoken": cookie.partition("=")[2],
            },
        )
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            return error.code

    def submit_upload(self, name: str = "mine.png") -> None:
        """Look at a file that was sent, and ask about it."""

        def asks(one) -> bool:
            return one.label == "Ask about this image"

        form = self._shown("file_uploader", lambda one: True)
        chosen = WidgetState(id=form.id)
        file = chosen.file_uploader_state_value.uploaded_file_info.add()
        file.file_id = file.name = name
        self._run(chosen)
        self.wait_until(lambda page: page._has("button", asks), 60)
        button = self._shown("button", asks)
        self._run(chosen, WidgetState(id=button.id, trigger_value=True))

    def close(self) -> None:
        """Go away, as when a tab is closed."""
        self._stack.close()

    def _run(
        self, *states: WidgetState, message: BackMsg | None = None, fragment: str = ""
    ) -> None:
        message = message or BackMsg()
        run = message.rerun_script
        run.widget_states.widgets.extend(states)
        run.query_string, run.fragment_id = self._link, fragment
        if self._hash:
            run.page_script_hash = self._hash
        else:
            run.page_name = self._page
        self._running = self._running or not fragment
        self._socket.send(message.SerializeToString())

    def wait_until(self, condition, seconds: float) -> bool:
        """Let the page live until a condition holds; False if it did not in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._live(0.1)
            if not self._running and condition(self):
                return True
        return False

    def _live(self, seconds: float) -> None:
        """Take what the server sends, and run the timers that are due."""
        try:
            self._take(self._socket.recv(seconds))
        except TimeoutError:
            pass
        now = time.monotonic()
        for fragment, due in list(self._due.items()):
            if due <= now and not self._running:
                self._due[fragment] = now + self._timers[fragment]
                self._run(fragment=fragment)

    def _take(self, data: bytes) -> None:
        message = ForwardMsg.FromString(data)
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._running = True
            self.session = message.new_session.initialize.session_id
            if not message.metadata.run.fragment_ids:
                self.elements, self._timers, self._due = {}, {}, {}
        elif kind == "script_finished":
            early = ForwardMsg.FINISHED_EARLY_FOR_RERUN  # another run follows at once
            self._running = message.script_finished == early
        elif kind == "navigation":
            self._hash = message.navigation.page_script_hash
            self._pages = {
                page.url_pathname: page.page_script_hash
                for page in message.navigation.app_pages
            }
        elif kind == "page_info_changed":
            changed = message.page_info_changed.query_string
            if changed != self._link and self._link:
                self._history.append((self._hash, self._link))
            self._link = changed
        elif kind == "auto_rerun":
            fragment = message.auto_rerun.fragment_id
            self._timers[fragment] = message.auto_rerun.interval
            self._due[fragment] = time.monotonic() + message.auto_rerun.interval
        elif kind == "delta":
            self._place(tuple(message.metadata.delta_path), message.delta)

    def _place(self, path: tuple, delta: Delta) -> None:
        self.elements[path] = delta
        element = delta.new_element
        if element.HasField("exception"):
            self.errors.append(element.exception.message)
        if element.HasField("alert") and element.alert.body == SORRY:
            self.errors.append(SORRY)
        if element.HasField("progress"):
            text = element.progress.text
            if text not in self.said:
                self.said.append(text)

    # --- what is shown --------------------------------------------------------------

    @property
    def progress(self) -> list[str]:
        """The texts of the progress bars that the page shows."""
        return [
            delta.new_element.progress.text
            for delta in self.elements.values()
            if delta.new_element.HasField("progress")
        ]

    @property
    def texts(self) -> str:
        """All text that the page shows."""
        found = []
        for delta in self.elements.values():
            element = delta.new_element
            kind = element.WhichOneof("type")
            if kind in ("markdown", "alert"):
                found.append(getattr(element, kind).body)
        return "\n".join(found)

    def _shown(self, kind: str, is_meant: Callable):
        """Return the first element of a kind that is meant."""
        return next(one for one in self._all(kind) if is_meant(one))

    def _has(self, kind: str, is_meant: Callable) -> bool:
        return any(map(is_meant, self._all(kind)))

    def _all(self, kind: str) -> list:
        elements = [delta.new_element for delta in self.elements.values()]
        return [getattr(one, kind) for one in elements if one.HasField(kind)]

    def _strips(self) -> list[tuple[str, dict]]:
        """Return every strip of images with the name of its component."""
        found = []
        for _, delta in sorted(self.elements.items()):
            shown = delta.new_element.bidi_component
            if shown.component_name.endswith("afterimage_tiles"):
                data = json.loads(shown.json or shown.mixed.json)
                found += [(shown.id, strip) for strip in data["strips"]]
        return found

    def strips(self) -> list[dict]:
        """Return what every lens column shows, in order: rows of tiles."""
        found = []
        for _, delta in sorted(self.elements.items()):
            shown = delta.new_element.bidi_component
            if shown.component_name.endswith("afterimage_tiles"):
                data = json.loads(shown.json or shown.mixed.json)
                if data["layout"] == "lens":
                    found.append(data)
        return found
