"""The app as a server: what is let in, how much is kept of it, and who may frame it.

`app.py` hands these parts to Streamlit, which itself bounds the size of one upload, and
neither how many there are nor for how long they stay.
"""

import asyncio
import os
import re
import threading
import webbrowser
from collections import Counter
from contextlib import asynccontextmanager, suppress
from functools import cache
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from streamlit import runtime

from core.explorer.uploads import Uploads
from pages.parts import warm_up

SWEEP_EVERY = 5.0  # seconds between two looks at who is still there
AT_ONCE, AT_ONCE_IN_ALL = 2, 8  # uploads on their way: of one visitor, of all
LONGEST_UPLOAD = 60.0  # seconds that one may take
UPLOAD = re.compile(r"/_stcore/upload_file/([^/]+)/([^/]+)$")
SORRY = (
    "This could not be shown; the log of the app says why. Load the page again, or "
    "choose another image."
)


@cache
def uploads() -> Uploads:
    """Return the uploads of all visitors of this server."""
    return Uploads()


def apologise(error: Exception) -> bool:
    """Say in a sentence that a page failed; Streamlit has logged why."""
    st.error(SORRY)
    return True


@asynccontextmanager
async def lifespan(app):
    """Load the pages, open a browser, and free the uploads of those who went away."""
    warm_up.prepare_pages()
    sweeping = asyncio.create_task(_sweep())
    if not st.get_option("server.headless"):
        path = st.get_option("server.baseUrlPath").strip("/")
        address = f"http://localhost:{st.get_option('server.port')}/{path}"
        opening = threading.Timer(1, webbrowser.open, [address])  # some wait for it
        opening.daemon = True
        opening.start()
    try:
        yield
    finally:
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping


async def _sweep() -> None:
    while True:
        await asyncio.sleep(SWEEP_EVERY)
        uploads().free_those_gone(runtime.get_instance().is_active_session)


class Guard:
    """Stands before Streamlit's own server (ASGI)."""

    def __init__(self, app):
        """Guard an application."""
        self._app = app
        self._under_way: Counter[str] = Counter()  # uploads, by visitor

    async def __call__(self, scope, receive, send) -> None:
        """Pass on what may pass."""
        if scope["type"] == "websocket" and is_foreign(Headers(scope=scope)):
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].endswith("/_stcore/metrics"):
            # Tells everybody how many visitors there are and what they did.
            await PlainTextResponse("Not found", 404)(scope, receive, send)
            return
        upload = UPLOAD.search(scope["path"])
        if upload and scope["method"] in ("PUT", "DELETE"):
            await self._pass_upload(*upload.groups(), scope, receive, send)
        else:
            await self._app(scope, receive, protected(send))

    async def _pass_upload(self, visitor, name, scope, receive, send) -> None:
        """Let a file in, or a visitor's wish to remove it, and count it."""
        busy, status, size = self._under_way, 0, 0
        if busy[visitor] >= AT_ONCE or busy.total() >= AT_ONCE_IN_ALL:
            message = "Other uploads are on their way. Try again in a moment."
            await PlainTextResponse(message, 429)(scope, receive, send)
            return

        async def counted():
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message

        async def noted(message):
            nonlocal status
            status = message.get("status", status)
            await send(message)

        busy[visitor] += 1
        try:
            async with asyncio.timeout(LONGEST_UPLOAD):
                await self._app(scope, counted, noted)
        except TimeoutError:
            message = f"The upload took longer than {LONGEST_UPLOAD:.0f} seconds."
            await PlainTextResponse(message, 408)(scope, receive, send)
        finally:
            busy[visitor] -= 1
            if not busy[visitor]:
                del busy[visitor]
        if status != 204:
            return
        if scope["method"] == "DELETE":
            uploads().forget(visitor, name)
            return
        store = runtime.get_instance().uploaded_file_mgr
        uploads().keep(
            visitor, name, size, free=lambda: store.remove_file(visitor, name)
        )


def is_foreign(headers: Headers) -> bool:
    """Return whether another site's page asks, which Streamlit would refuse as well.

    Before it does, it asks a server on the internet for this machine's address.
    """
    origin, host = headers.get("origin"), headers.get("host")
    if origin is None or not st.get_option("server.enableCORS"):
        return False
    place = urlsplit(origin)
    known = {"localhost", "127.0.0.1", "0.0.0.0"}
    known.add(st.get_option("browser.serverAddress"))
    allowed = st.get_option("server.corsAllowedOrigins")
    known |= {urlsplit(one).hostname for one in allowed}
    return place.netloc != host and place.hostname not in known


def protected(send):
    """Return what sends an answer with headers that say what a browser may do with it.

    No other site may show it in a frame but those that `AFTERIMAGE_FRAMES` names.
    """
    frames = os.environ.get("AFTERIMAGE_FRAMES", "").strip()

    async def sent(message):
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            ancestors = f"frame-ancestors 'self' {frames}".strip()
            headers["Content-Security-Policy"] = ancestors
            if not frames:
                headers["X-Frame-Options"] = "SAMEORIGIN"
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "same-origin"
        await send(message)

    return sent
