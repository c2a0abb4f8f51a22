"""Files of weights that others made: opened safely, whole, with plain errors.

Every file of weights is read here. Its content decides what it is, not its ending. No
code in a pickle is run. A module gets every weight of its file and no other, all of
them finite. Anything that breaks this is a ValueError of one sentence. This file knows
nothing of what the weights are for.
"""

import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
LIBRARIES = ("diffusers", "transformers", "peft", "accelerate")
AGAIN = "Save the model again with `save_pretrained`."
# As diffusers and transformers name them, plain or a variant, whole or in parts:
# `model.fp16.safetensors`, `model.fp16-00001-of-00002.safetensors`, and as they did
# before, `model-00001-of-00002.fp16.safetensors`.
NAMES = re.compile(
    r"(diffusion_pytorch_model|pytorch_model|model)(\.(?P<before>\w+))?"
    r"(-\d+-of-(?P<parts>\d+))?(\.(?P<after>\w+))?\.(safetensors|bin)"
)
_POINTER = b"version https://git-lfs"  # a small text in the place of a large file


def read_weights(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file by name, and the texts in its header.

    A pickle is read as weights only, which runs none of the code it may hold.

    Raises:
        ValueError: If it is damaged, or holds anything but tensors with names.
    """
    start = _start(file)
    if int.from_bytes(start[:8], "little") < file.stat().st_size and start[8:9] == b"{":
        try:
            with safe_open(file, "pt") as opened:
                weights = {name: opened.get_tensor(name) for name in opened.keys()}
                return weights, opened.metadata() or {}
        except (SafetensorError, ValueError, KeyError):
            raise ValueError(f"{_called(file)} is damaged. Copy it again.") from None
    if not start.startswith((b"PK", b"\x80")):  # as torch writes them, today and before
        raise ValueError(
            f"{_called(file)} is damaged, or not a file of weights. Copy it again, or "
            "save the weights as safetensors."
        )
    return _unpickled(file), {}


def _called(file: Path) -> str:
    return f"'{file.parent.name}/{file.name}'"


def _start(file: Path) -> bytes:
    """Return the first bytes of a file, if they are those of a file of weights."""
    try:
        with file.open("rb") as opened:
            start = opened.read(64)
    except OSError as error:
        raise ValueError(
            f"{_called(file)} cannot be read ({error.strerror})."
        ) from None
    if start.startswith(_POINTER):
        raise ValueError(
            f"{_called(file)} is only a pointer of Git LFS to the weights. Fetch them "
            "with `git lfs pull`."
        )
    if start.startswith(b"GGUF"):
        raise ValueError(
            f"{_called(file)} holds weights rounded for GGUF, which have no gradients. "
            "Give the model as diffusers saves it."
        )
    return start


def _unpickled(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a pickle by name.

    Raises:
        ValueError: If it holds anything but tensors.
    """
    try:
        with quietly():
            # Opened here: by its name torch would take it for safetensors.
            with file.open("rb") as opened:
                weights = torch.load(opened, "cpu", weights_only=True)
    except Exception:  # a pickle written to harm fails in as many ways as it likes
        weights = None
    if isinstance(weights, dict) and isinstance(weights.get("state_dict"), dict):
        weights = weights["state_dict"]
    if not isinstance(weights, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor)
        for name, value in weights.items()
    ):
        raise ValueError(
            f"{_called(file)} is a pickle that is damaged or holds more than weights, "
            "which may be code, so it was not opened. Save the weights as safetensors."
        )
    return weights


def check_finite(weights: Iterable[tuple[str, Tensor]], where: str) -> None:
    """Refuse weights that are not numbers.

    Raises:
        ValueError: If one is NaN or infinite; the first tensor of them is named.
    """
    bad = [name for name, value in weights if not value.double().isfinite().all()]
    if bad:
        more = f", and {len(bad) - 1:,} more" if len(bad) > 1 else ""
        raise ValueError(
            f"{where} has weights that are not numbers (NaN or infinite): '{bad[0]}'"
            f"{more}. Use a checkpoint from before the training diverged."
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Hide what libraries print while they load: it is advice for programmers."""
    from transformers.utils import logging as progress

    loggers = [logging.getLogger(name) for name in LIBRARIES]
    levels = [logger.level for logger in loggers]
    bars = progress.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    progress.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            progress.enable_progress_bar()


def load_whole(kind: type, folder: Path, **options) -> nn.Module:
    """Return a module of diffusers or transformers with every weight of its files.

    Args:
        kind: With `from_pretrained`.
        folder: The module's own folder.
        options: Of `from_pretrained`, such as its floating point type.

    Raises:
        ValueError: If files are missing, damaged or of another module, or weights are
            missing, surplus, of another shape, or no numbers.
    """
    where = f"'{folder.name}'"
    files, variant = weights_files(folder)
    for file in files:
        _check_opens(file)
    try:
        with quietly():
            module, loading = kind.from_pretrained(
                folder,
                local_files_only=True,
                variant=variant or None,
                use_safetensors=files[0].suffix == ".safetensors",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **options,
            )
    except Exception:  # these libraries raise many kinds, with advice for programmers
        raise ValueError(
            f"The settings in {where} are not those of a {kind.__name__} that this "
            f"version of its library can make. {AGAIN}"
        ) from None
    _check_whole(loading, where)
    check_finite(module.state_dict().items(), where)
    return module


def _check_opens(file: Path) -> None:
    """Refuse a file of weights that is damaged or unsafe, without holding it whole."""
    if file.suffix == ".safetensors":
        _start(file)
        try:
            with safe_open(file, "pt") as opened:
                opened.keys()
            return
        except SafetensorError:
            read_weights(file)  # says what it is instead
            raise ValueError(
                f"{_called(file)} is a pickle, not a safetensors file. Rename it to "
                f"'{file.stem}.bin'."
            ) from None
    read_weights(file)


def _check_whole(loading: Mapping, where: str) -> None:
    """Refuse a module that did not get each of its weights, or whose file has more.

    Args:
        loading: `missing_keys`, `unexpected_keys`, `mismatched_keys` of the loading.
        where: The module, for people.

    Raises:
        ValueError: If weights are missing, surplus or of another shape.
    """
    for which, complaint in (
        ("missing_keys", "lacks {}"),
        ("unexpected_keys", "holds {} that a model of its config.json does not have"),
    ):
        if names := sorted(loading[which]):
            counted = f"{len(names):,} weights, '{names[0]}' first"
            counted = counted if len(names) > 1 else f"the weights '{names[0]}'"
            raise ValueError(f"{where} {complaint.format(counted)}. {AGAIN}")
    if loading["mismatched_keys"]:
        name, given, wanted = min(loading["mismatched_keys"], key=lambda one: one[0])
        raise ValueError(
            f"{where} has '{name}' of shape {tuple(given)} and its config.json asks "
            f"for {tuple(wanted)}. {AGAIN}"
        )


def weights_files(given: Path) -> tuple[list[Path], str]:
    """Return the files of a module's weights, and the variant they are ("" for none).

    Plain files come before variants, "fp16" before others, safetensors before pickles.
    Names are those of diffusers and transformers, in one file or in parts.

    Raises:
        ValueError: If there are none, not all parts, or several other variants.
    """
    where = f"'{given.name}'"
    groups: dict[tuple[str, bool], list[Path]] = {}
    wanted: dict[tuple[str, bool], int] = {}
    for path in sorted(given.iterdir()):
        named = _variant(path.name)
        if named is not None:
            variant, number = named
            key = variant, path.suffix != ".safetensors"
            groups.setdefault(key, []).append(path)
            wanted[key] = max(number, wanted.get(key, 1))
    if not groups:
        others = ", ".join(sorted(p.name for p in given.iterdir())[:8]) or "nothing"
        raise ValueError(
            f"{where} has no file of weights; it holds {others}. Expected is "
            f"'diffusion_pytorch_model.safetensors'. {AGAIN}"
        )
    variants = {variant for variant, _ in groups}
    usual = next((one for one in ("", "fp16") if one in variants), None)
    if usual is None and len(variants) > 1:
        raise ValueError(
            f"{where} holds its weights as {', '.join(sorted(variants))} and none of "
            "them is the default. Keep the files of one."
        )
    variant = variants.pop() if usual is None else usual
    key = (variant, (variant, False) not in groups)
    if len(groups[key]) < wanted[key]:
        raise ValueError(
            f"{where} holds {len(groups[key])} of the {wanted[key]} files of its "
            "weights. Copy the others too."
        )
    if wanted[key] > 1 and not list(given.glob("*.index*.json")):
        raise ValueError(
            f"{where} holds its weights in {wanted[key]} files without the index of "
            "them, a '.index.json'. Copy it too."
        )
    return groups[key], variant


def _variant(name: str) -> tuple[str, int] | None:
    """Return which variant a file of weights is of, and of how many files it is one."""
    match = NAMES.fullmatch(name)
    if match is None:
        return None
    variant = match["before"] or match["after"] or ""
    return variant, int(match["parts"] or 1)
