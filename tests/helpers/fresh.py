"""Questions asked in a fresh process, where nothing is loaded yet."""

import subprocess
import sys
from pathlib import Path


def said_without_torch(root: Path, *lines: str) -> str:
    """Return what lines print about gallery image 1; torch stays unloaded.

    They have `explorer`, of the collection "glyphs" in a folder, `query` and `Lens`.
    """
    code = [
        "import sys",
        "from pathlib import Path",
        "from core.explorer.explorer import Lens, open_explorer",
        f"explorer = open_explorer('glyphs', Path({str(root)!r}))",
        "query = explorer.query_from_gallery(1)",
        *lines,
        "sys.exit('torch' in sys.modules)",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
