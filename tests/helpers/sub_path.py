"""The app under a sub-path behind a reverse proxy, seen with a browser: one report.

`python -m tests.helpers.sub_path FOLDER` prints as JSON what a browser saw and asked
for. Run inside `unshare --net` it shows that nothing needs the network. The proxy
passes on requests, websockets and the name under which it was asked, and no more.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from aiohttp import ClientSession, WSMsgType, web
from playwright.sync_api import sync_playwright

from tests.helpers.server import PATIENCE, free_port, running_app

PATH = "/afterimage"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NOT_PASSED = {"connection", "content-length", "transfer-encoding", "content-encoding"}

# Run by every Python that finds it on its path: notes whom the app speaks to.
LISTENER = """
import os, sys
def note(event, arguments):
    if event == "socket.connect":
        place = arguments[1]
        name = place[0] if isinstance(place, tuple) else "this machine"
    elif event == "socket.getaddrinfo":
        name = arguments[0]
    else:
        return
    with open(os.environ["AFTERIMAGE_HEARD"], "a") as file:
        file.write(f"{name}\\n")
sys.addaudithook(note)
"""


def proxy_to(address: str, port: int) -> None:
    """Serve another address on a port, for ever."""

    async def passed_on(request: web.Request) -> web.StreamResponse:
        place = f"{address}{request.raw_path}"
        headers = {
            k: v for k, v in request.headers.items() if k.lower() != "connection"
        }
        if request.headers.get("upgrade", "").lower() == "websocket":
            return await websocket(request, place)
        async with (
            ClientSession(auto_decompress=True) as session,
            session.request(
                request.method,
                place,
                headers=headers,
                data=await request.read(),
                allow_redirects=False,
            ) as found,
        ):
            kept = {
                k: v for k, v in found.headers.items() if k.lower() not in NOT_PASSED
            }
            return web.Response(
                status=found.status, headers=kept, body=await found.read()
            )

    async def websocket(request: web.Request, place: str) -> web.WebSocketResponse:
        spoken = request.headers.get("sec-websocket-protocol", "")
        protocols = [one.strip() for one in spoken.split(",")]
        named = {
            k: request.headers[k]
            for k in ("Host", "Origin", "Cookie")
            if k in request.headers
        }
        async with (
            ClientSession() as session,
            session.ws_connect(
                place, protocols=protocols, headers=named, max_msg_size=0
            ) as there,
        ):
            here = web.WebSocketResponse(protocols=protocols[:1], max_msg_size=0)
            await here.prepare(request)
            ways = asyncio.gather(copied(here, there), copied(there, here))
            await ways
            return here

    async def copied(source, target) -> None:
        async for message in source:
            if message.type == WSMsgType.BINARY:
                await target.send_bytes(message.data)
            elif message.type == WSMsgType.TEXT:
                await target.send_str(message.data)
        await target.close()

    async def serve() -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{anything:.*}", passed_on)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    asyncio.run(serve())


def seen(address: str, chromium: str) -> dict:
    """Return what a browser sees of the app, its errors, and whom it asks."""
    errors, hosts = [], set()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(2 * PATIENCE * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda said: said.type == "error" and errors.append(said.text)
        )
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.on("websocket", lambda socket: hosts.add(socket.url.split("/")[2]))
        page.goto(f"{address}/?example=5&lenses=ekfac.loss~clip")
        for strip in ("Helped", "Most similar"):
            page.get_by_role("region", name=strip).get_by_role(
                "button"
            ).first.wait_for()
        page.locator(".ground img").wait_for()  # the image that can be drawn on
        page.get_by_role("table").first.wait_for()  # how the lenses agree
        page.get_by_role("link", name="Collections", exact=True).click()
        page.get_by_text("What it cost").wait_for()
        where = page.url
        browser.close()
    return {"errors": errors, "hosts": sorted(hosts), "where": where}


def main(folder: str, chromium: str) -> None:
    """Print what was seen."""
    # A network of one's own has not even this machine in it at first.
    subprocess.run(["ip", "link", "set", "lo", "up"], capture_output=True)
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "sitecustomize.py").write_text(LISTENER)
        heard = Path(place) / "heard"
        heard.touch()
        os.environ |= {"PYTHONPATH": place, "AFTERIMAGE_HEARD": str(heard)}
        with running_app(
            Path(folder), "--server.baseUrlPath", PATH.strip("/"), path=PATH
        ) as server:
            upstream = server.address.removesuffix(PATH)
            arguments = (upstream, port)
            threading.Thread(target=proxy_to, args=arguments, daemon=True).start()
            found = seen(f"http://127.0.0.1:{port}{PATH}", chromium)
        found["app_speaks_to"] = sorted(set(heard.read_text().split("\n")) - {""})
        found["own"] = f"127.0.0.1:{port}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
