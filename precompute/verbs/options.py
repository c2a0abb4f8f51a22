"""How a command line is read: options that several verbs have, and what they take.

A wrong value is one sentence: the option, its value, what is expected. Nothing is run
here, and nothing heavy is loaded.
"""

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from core.config import GGNS, KFAC_APPROXIMATIONS
from core.presets import COLLECTIONS, PRESETS, RECIPES
from core.rules import OneOf, Rule, Whole

Others = Iterable[Callable[[argparse.ArgumentParser], None]]
SPLITS = ("train", "validation", "test", "all")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the list of all options."""

    def error(self, message: str) -> None:
        """End the program; an option that is named comes first."""
        named = re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)
        text = (
            f"`{named[1]}` {named[2]}" if named else message[:1].upper() + message[1:]
        )
        choice = r"invalid choice: (.*) \(choose from (.*)\)"
        text = re.sub(choice, r"cannot be \1. Expected: one of \2.", text)
        end = "" if text.endswith(".") else f". `{self.prog} --help` lists all."
        self.exit(2, f"{text}{end}\n")


def valued(rule: Rule, kind: type = int) -> Callable[[str], object]:
    """Return what reads an option whose values a rule allows."""

    def read(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not rule.allows(value):
            raise argparse.ArgumentTypeError(
                f"cannot be '{text}'. Expected: {rule.expected()}."
            )
        return value

    return read


def one_of(*values: str) -> Callable[[str], object]:
    """Return what reads an option with few values."""
    return valued(OneOf(values), str)


def device(text: str) -> str:
    """Return the name of a device that is here.

    Raises:
        argparse.ArgumentTypeError: If there is no such device.
    """
    if text == "cpu":
        return text
    import torch

    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = re.fullmatch(r"cuda(?::(\d+))?", text)
    if named and int(named[1] or 0) < cards:
        return text
    expected = f"cpu, or one of {cards} cards, cuda:0 and up" if cards else "cpu"
    none = "" if cards or not named else "; torch finds no CUDA card on this machine"
    raise argparse.ArgumentTypeError(f"cannot be '{text}'. Expected: {expected}{none}.")


def add_root(parser: argparse.ArgumentParser) -> None:
    """Add where published collections lie."""
    parser.add_argument("--root", type=Path, help="folder of published collections")


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add where published collections and unfinished work lie."""
    add_root(parser)
    parser.add_argument("--work", type=Path, help="folder of unfinished work")


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add what is computed on."""
    parser.add_argument(
        "--device", type=device, help="cpu or cuda; default: cuda if there is one"
    )
    parser.add_argument("--threads", type=valued(Whole(1, 1024)), help="CPU threads")


def add_published(parser: argparse.ArgumentParser) -> None:
    """Add what verbs have that go on from a published collection."""
    parser.add_argument("--collection", required=True)
    add_places(parser)


def add_settings(
    parser: argparse.ArgumentParser, own: bool = False, others: Others = ()
) -> None:
    """Add what verbs have that work with a collection's settings.

    Args:
        parser: Of the verb.
        own: Whether a collection of the user's own images can be made by it.
        others: What adds the verb's further options.
    """
    parser.add_argument(
        "--collection", required=True, help=f"{', '.join(COLLECTIONS)} or your own"
    )
    parser.add_argument(
        "--preset", help=f"{', '.join(PRESETS)}; with --data {', '.join(RECIPES)}"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="STAGE.SETTING=VALUE",
        help="change one setting, such as train.num_steps=500",
    )
    if own:
        group = parser.add_argument_group("a collection of your own images")
        group.add_argument("--data", type=Path, metavar="PATH", help="where they lie")
        add_selection(group)
        add_credits(group)
    parser.add_argument("--seed", type=valued(Whole()), help="of everything random")
    add_places(parser)
    add_machine(parser)
    for add in others:
        add(parser)
    group = parser.add_argument_group("the curvature; default: the preset's")
    group.add_argument("--ggn", type=one_of(*GGNS), help="of the model or the loss")
    group.add_argument("--kfac-approx", type=one_of(*KFAC_APPROXIMATIONS))


def add_credits(group) -> None:
    """Add the option that says whose the images are."""
    group.add_argument(
        "--credits",
        type=Path,
        metavar="FILE",
        help="whose the images are, and their licence: a text for all, or a .csv with "
        "one of their columns and 'credit'",
    )


def add_selection(group) -> None:
    """Add the options that say which images of a path are wanted."""
    group.add_argument(
        "--split",
        type=one_of(*SPLITS),
        help=f"{', '.join(SPLITS)}; default: what PATH is called, else train",
    )
    group.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN=VALUE,...",
        help="only images with one of these values",
    )
    group.add_argument("--index", type=Path, help="file of positions among these")
    group.add_argument(
        "--limit", type=valued(Whole(1)), help="only as many, the first ones"
    )
    group.add_argument(
        "--classes",
        metavar="COLUMN[,COLUMN]",
        help="columns whose combination is the class; default: label",
    )
    group.add_argument(
        "--allow-outside",
        action="store_true",
        help="read images out of the folder that tables name",
    )
    group.add_argument(
        "--drop-duplicates",
        action="store_true",
        help="use each image once: leave out those with the pixels of an earlier one",
    )
    group.add_argument(
        "--exclude-opted-out",
        action="store_true",
        help="leave out images whose files forbid training (XMP, Content Credentials)",
    )
