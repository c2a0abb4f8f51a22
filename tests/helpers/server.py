"""The app as a server of its own, on a free port."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120  # seconds, on a busy machine


@dataclass(frozen=True)
class Server:
    """A running app.

    Attributes:
        address: Such as "http://127.0.0.1:8501".
        process: Its number.
    """

    address: str
    process: int

    def megabytes(self) -> float:
        """Return the memory that it holds; Linux only."""
        lines = Path(f"/proc/{self.process}/status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("VmRSS:")]
        return int(line.split()[1]) / 1024

    def cpu_seconds(self) -> float:
        """Return what the process and its children computed so far; Linux only."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2]
        ticks = sum(map(int, fields.split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_app(
    root: Path,
    *options: str,
    path: str = "",
    before: tuple[str, ...] = (),
    script: Path | None = None,
    checkout: Path = ROOT,
) -> Iterator[Server]:
    """Run the app on a folder of collections.

    Args:
        root: The folder.
        options: More of Streamlit's, such as "--server.baseUrlPath".
        path: Under which the app lies, such as "/afterimage".
        before: A command that runs the app's, such as ("unshare", "-n").
        script: What Streamlit runs, `app.py` unless given.
        checkout: The folder of the program.

    Yields:
        The running app.
    """
    port = free_port()
    command = [*before, sys.executable, "-m", "streamlit", "run"]
    command += [str(script or checkout / "app.py")]
    command += ["--server.headless", "true", "--server.port", str(port)]
    command += ["--server.address", "127.0.0.1", "--server.fileWatcherType", "none"]
    process = subprocess.Popen(
        [*command, *options],
        cwd=checkout,
        env=os.environ | {"AFTERIMAGE_COLLECTIONS": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}{path}"
        wait_for_health(address, process)
        yield Server(address, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_health(address: str, process: subprocess.Popen) -> None:
    """Wait until the app answers."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, "the app ended by itself"
        try:
            if urllib.request.urlopen(f"{address}/_stcore/health").read() == b"ok":
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the app never answered")
