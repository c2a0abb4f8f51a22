"""Visitors of a running app, at the level of its websocket: what a browser would show.

A visitor opens an address, lets the page's timers run as a browser does, clicks, and
goes away. One process can be twenty of them, which browsers on this machine could not.
"""

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect


@dataclass
class Visitor:
    """One open page.

    Attributes:
        address: Of the app, such as "http://127.0.0.1:8501".
        said: Every text of a progress bar, once, in order.
        elements: What the page shows, by place.
        errors: Tracebacks that were shown.
    """

    address: str
    said: list[str] = field(default_factory=list)
    elements: dict[tuple, Delta] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self):
        """Connect; nothing is asked yet."""
        place = self.address.replace("http", "ws", 1) + "/_stcore/stream"
        self._stack = ExitStack()
        self._socket: ClientConnection = self._stack.enter_context(
            connect(place, subprotocols=["streamlit"], max_size=None)
        )
        self._link, self._page = "", ""
        self._timers: dict[str, float] = {}  # fragment -> seconds between its runs
        self._due: dict[str, float] = {}
        self._running = False

    def ask(self, link: str, page: str = "") -> None:
        """Open a link, such as "sample=3&lenses=ekfac.loss", on a page."""
        self._link, self._page, self._running = link, page, True
        self._run()

    def click(self, label: str) -> None:
        """Click the button of that label that the page shows."""
        message = BackMsg()
        state = message.rerun_script.widget_states.widgets.add()
        state.id = next(
            delta.new_element.button.id
            for delta in self.elements.values()
            if delta.new_element.button.label == label
        )
        state.trigger_value = True
        self._run(message)

    def close(self) -> None:
        """Go away, as when a tab is closed."""
        self._stack.close()

    def _run(self, message: BackMsg | None = None, fragment: str = "") -> None:
        message = message or BackMsg()
        message.rerun_script.query_string = self._link
        message.rerun_script.page_name = self._page
        message.rerun_script.fragment_id = fragment
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
            if not message.metadata.run.fragment_ids:
                self.elements, self._timers, self._due = {}, {}, {}
        elif kind == "script_finished":
            self._running = False
        elif kind == "page_info_changed":
            self._link = message.page_info_changed.query_string
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
