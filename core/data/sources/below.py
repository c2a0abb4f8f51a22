"""Which files and folders lie below a folder, links to folders among them.

Every folder is visited once, however many links lead to it, and none around the one
that was given, so that no loop is endless and nobody's whole disk is read. What is left
out is named with the reason. Knows nothing of what the files are.
"""

import os
import stat
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from core.data.sources.records import is_hidden
from core.files.texts import listed


@dataclass
class Below:
    """What lies below a folder.

    Attributes:
        files: In the order of their paths; no hidden ones.
        folders: The one that was given first, and nearer ones before others.
        left_out: (place, reason) of what is there and was not followed.
    """

    files: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Return what was left out, a sentence for each reason."""
        reasons = dict.fromkeys(reason for _, reason in self.left_out)
        paths = {
            reason: [path for path, why in self.left_out if why == reason]
            for reason in reasons
        }
        return [f"Left out: {listed(paths[why])} ({why})." for why in reasons]


def files_below(folder: Path) -> list[PurePath]:
    """Return the relative paths of all files in and below a folder, in their order."""
    return [file.relative_to(folder) for file in below(folder).files]


def below(folder: Path, depth: int | None = None) -> Below:
    """Return what lies below a folder.

    Args:
        folder: That itself must be readable; its errors pass through.
        depth: How many folders down; None goes to the end.
    """
    os.listdir(folder)
    root = folder.resolve()
    around = {_identity(current) for current in root.parents}
    listing, visited = Below(), {}
    waiting, links = deque([folder]), []
    while waiting or links:
        if not waiting:
            # Folders that really lie here come first: a link never takes their place.
            links.sort()
            _follow(folder, links.pop(0), around, visited, listing, waiting)
            continue
        current = waiting.popleft()
        try:
            who = _identity(current)
            entries = sorted(os.scandir(current), key=lambda entry: entry.name)
        except OSError as error:
            _leave_out(listing, folder, current, os.strerror(error.errno))
            continue
        if who in visited:
            _leave_out(listing, folder, current, _again(folder, visited[who]))
            continue
        visited[who] = current
        listing.folders.append(current)
        deeper = depth is None or len(current.relative_to(folder).parts) < depth
        for entry in entries:
            inner = current / entry.name
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.extend([inner] * deeper)
            elif entry.is_file(follow_symlinks=False):
                listing.files.append(inner)
            elif entry.is_symlink():
                links.extend([inner] * deeper)
            else:
                _leave_out(listing, folder, inner, "it is neither a file nor a folder")
    listing.files.sort()
    return listing


def _follow(folder, link, around, visited, listing, waiting) -> None:
    """Note where a link leads."""
    try:
        target = link.stat()
    except OSError:
        return _leave_out(listing, folder, link, "it links to nothing that can be read")
    if stat.S_ISREG(target.st_mode):
        return listing.files.append(link)
    who = target.st_dev, target.st_ino
    if not stat.S_ISDIR(target.st_mode):
        return _leave_out(listing, folder, link, "it is neither a file nor a folder")
    if who in around:
        return _leave_out(listing, folder, link, "it links to a folder around this one")
    if who in visited:
        return _leave_out(listing, folder, link, _again(folder, visited[who]))
    return waiting.append(link)


def _again(folder: Path, known: Path) -> str:
    return f"it is '{known.relative_to(folder)}' again"


def _leave_out(listing: Below, folder: Path, path: Path, reason: str) -> None:
    listing.left_out.append((str(path.relative_to(folder)), reason))


def _identity(path: Path) -> tuple[int, int]:
    """Return what tells a folder from all others."""
    status = path.stat()
    return status.st_dev, status.st_ino
