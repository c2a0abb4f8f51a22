"""Collections of a user's own images: how each recipe trains, and where it is kept.

A collection is made once, from a data set and a recipe; `NAME.json` beside the data set
then holds its settings, so that every later command needs its name only.
"""

import json
import typing
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from core.checks import NAME, RULES
from core.config import (
    CollectionConfig,
    config_from_dict,
    sets_folder,
)
from core.files.whole import written_whole
from core.presets import COLLECTIONS, collection_config
from core.rules import Rule, Whole


def check_name(name: str) -> None:
    """Refuse a name that another collection has or that no file should.

    Raises:
        ValueError: If the name is taken or not allowed.
    """
    if name in COLLECTIONS:
        raise ValueError(
            f"'{name}' is a collection that comes with this program. Choose another "
            "name for your images."
        )
    if not NAME.allows(name):
        raise ValueError(
            f"'{name}' cannot name a collection. Expected: {NAME.expected()}."
        )


def own_path(name: str) -> Path:
    """Return where the settings of a user's own collection lie."""
    return sets_folder() / f"{name}.json"


def check_free(config: CollectionConfig) -> None:
    """Refuse a name under which other settings are kept.

    Raises:
        ValueError: If other settings are kept under the name.
    """
    path = own_path(config.name)
    if path.exists() and read_own(path) != config:
        raise ValueError(
            f"The collection '{config.name}' exists with other images or settings. "
            "Choose another name, change its settings with --set and without --data, "
            f"or remove '{path}' to make it anew."
        )


def save_own(config: CollectionConfig) -> None:
    """Keep the settings of a user's own collection, in place of those there were."""
    path = own_path(config.name)
    if path.exists() and read_own(path) == config:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        file.write((json.dumps(config.to_dict(), indent=1) + "\n").encode())


def read_own(path: Path) -> CollectionConfig:
    """Return the settings that `save_own` kept."""
    return config_from_dict(json.loads(path.read_text()))


def own_names() -> list[str]:
    """Return the names of the user's own collections."""
    return sorted(path.stem for path in sets_folder().glob("*.json"))


def named_config(name: str, preset: str | None = None) -> CollectionConfig:
    """Return the settings of a collection that comes along or is a user's own.

    Args:
        name: Of the collection.
        preset: Size of one that comes along; None is "cpu". A user's own has the
            settings it was made with.

    Raises:
        LookupError: If there is none of that name.
        ValueError: If a preset is given for a user's own.
    """
    if name in COLLECTIONS:
        return collection_config(name, preset or "cpu")
    if not NAME.allows(name) or not own_path(name).exists():
        raise LookupError(
            f"There is no collection '{name}' to build. Known collections: "
            f"{', '.join([*sorted(COLLECTIONS), *own_names()])}. Make your own with "
            "--data PATH."
        )
    if preset is not None:
        raise ValueError(
            f"'{name}' was made with settings of its own, which count for every "
            "command. Omit --preset, or give --data and another name."
        )
    return read_own(own_path(name))


# --- single settings -----------------------------------------------------------------


def with_settings(config: CollectionConfig, changes: list[str]) -> CollectionConfig:
    """Return settings with some changed.

    Args:
        config: The settings.
        changes: Such as "train.num_steps=500"; a list is written "16,32".

    Raises:
        ValueError: If there is no such setting, or the value is not of its kind; the
            message says what there is.
    """
    for change in changes:
        setting, _, text = change.partition("=")
        if setting == "seed":
            config = replace(config, seed=_parsed(text, int, Whole(), setting))
            continue
        stage, _, name = setting.partition(".")
        stage_settings = getattr(config, stage, None)
        if not is_dataclass(stage_settings):
            stages = [f.name for f in fields(config) if is_dataclass(f.type)]
            raise ValueError(
                f"'{change}' names no setting. Write STAGE.SETTING=VALUE, STAGE one of "
                f"{', '.join(stages)}."
            )
        types = typing.get_type_hints(type(stage_settings))
        if name not in types:
            raise ValueError(
                f"'{stage}' has no setting '{name}'. It has {', '.join(types)}."
            )
        value = _parsed(text, types[name], RULES[type(stage_settings)][name], setting)
        config = replace(config, **{stage: replace(stage_settings, **{name: value})})
    return config


def _parsed(text: str, kind: type, rule: Rule, setting: str):
    """Return a value that a setting may have, written as text."""
    try:
        value = _read(text, kind)
        if rule.allows(value):
            return value
    except (KeyError, ValueError):
        pass
    raise ValueError(f"`{setting}` cannot be '{text}'. Expected: {rule.expected()}.")


def _read(text: str, kind: type):
    """Return a value of a setting's type, written as text; a KeyError or ValueError."""
    kinds = [one for one in typing.get_args(kind) if one is not type(None)]
    if type(None) in typing.get_args(kind):
        return None if text == "none" else _read(text, kinds[0])
    if typing.get_origin(kind) is tuple:
        return tuple(_read(one, kinds[0]) for one in text.split(",") if one)
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    return kind(text)
