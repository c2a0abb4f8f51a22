"""Which settings a command works with: those its collection was made with.

`build` and every stage keep the settings they are given, beside the unfinished work;
a published collection records them, too, and a user's own collection has them beside
its images. A later command finds them here, so that none works with others by mistake.
"""

import json
from pathlib import Path

from core.checks import check_settings
from core.collection.store import Collection, find_collection
from core.config import DATA_DIR, CollectionConfig, config_from_dict
from core.presets import COLLECTIONS
from core.recipes import named_config, own_path, save_own, with_settings
from precompute.machinery.workspace import write_atomically


def kept_path(name: str, work: Path | None) -> Path:
    """Return where the settings of a collection in the making lie."""
    return (work or DATA_DIR / "work") / name / "settings.json"


def made_settings(
    name: str, root: Path, work: Path | None = None
) -> CollectionConfig | None:
    """Return the settings that a collection is being made or was made with.

    Args:
        name: Of the collection.
        root: Folder of the published collections.
        work: Folder of unfinished work; None for `data/work`.

    Returns:
        The settings; None where it was never made here, or by another version of this
        program.
    """
    try:
        return config_from_dict(json.loads(kept_path(name, work).read_text()))
    except (OSError, ValueError):
        pass
    return published_settings(name, root)


def published_settings(name: str, root: Path) -> CollectionConfig | None:
    """Return the settings that a published collection records; None without one."""
    try:
        with Collection(find_collection(root, name)) as collection:
            return config_from_dict(collection.meta("settings"))
    except (LookupError, ValueError):
        return None


def settings_for(
    name: str,
    root: Path,
    work: Path | None = None,
    preset: str | None = None,
    changes: list[str] | None = None,
) -> CollectionConfig:
    """Return the settings of a collection for any command, checked.

    Args:
        name: Of the collection.
        root: Folder of the published collections.
        work: Folder of unfinished work; None for `data/work`.
        preset: Where it comes along, a size in place of what it was made with.
        changes: As for `with_settings`, on top.

    Returns:
        The settings. The errors of `named_config`, `with_settings` and
        `check_settings` pass through.
    """
    config = named_config(name, preset)
    if preset is None and name in COLLECTIONS:
        config = made_settings(name, root, work) or config
    config = with_settings(config, changes or [])
    check_settings(config)
    return config


def keep_settings(config: CollectionConfig, work: Path | None = None) -> None:
    """Keep what a collection is being made with, for every later command."""
    path = kept_path(config.name, work)
    text = json.dumps(config.to_dict(), indent=1) + "\n"
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text.encode())
    if config.name not in COLLECTIONS and own_path(config.name).exists():
        save_own(config)


def has_results(name: str, root: Path, work: Path | None) -> bool:
    """Return whether anything was made of a collection that other settings would not.

    What is kept of it can be replaced where nothing was.
    """
    folder = kept_path(name, work).parent
    return (root / f"{name}.current").exists() or any(folder.glob("*.safetensors"))
