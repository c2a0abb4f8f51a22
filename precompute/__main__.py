"""Make collections and ask them: `python -m precompute VERB --collection NAME`.

Each verb is a file in `precompute.verbs` with its options and what it runs. What a verb
computes with is loaded when it runs, so that help and mistakes take no time.
"""

import argparse
import sys
from contextlib import ExitStack
from importlib import import_module

from core.answers import Cancelled
from core.files.texts import one_line
from core.files.whole import Damaged, is_full, trouble
from precompute.machinery.out import check_out
from precompute.machinery.progress import telling
from precompute.machinery.turns import taken_turn
from precompute.verbs.options import Parser
from precompute.verbs.settings import root_of

NAMES = ("train", "curvature", "samples", "gradients", "fidelity", "build", "plan")
NAMES += ("retrain", "evidence", "inspect-data", "import-model", "clip", "methods")
NAMES += ("answers", "errors", "sheet", "site", "attribute", "unroll")
NAMES += ("smoothness", "summary")
VERBS = {
    name: import_module(f"precompute.verbs.{name.replace('-', '_')}") for name in NAMES
}
# What looks or prints; the others make something that somebody may wait for.
QUICK = ("attribute", "inspect-data", "plan", "sheet", "site", "summary")


def parser() -> Parser:
    """Return the command line."""
    command = Parser(
        prog="python -m precompute",
        description=(
            "Make a collection, or ask one. Every stage resumes. Under torchrun, "
            "curvature, gradients and build share the work."
        ),
    )
    verbs = command.add_subparsers(dest="verb", required=True, metavar="STAGE")
    for name, verb in VERBS.items():
        verb.add(verbs.add_parser(name, help=verb.HELP))
    return command


def run(options: argparse.Namespace) -> None:
    """Run a verb."""
    if getattr(options, "out", None) is not None:
        check_out(options.verb, options.out)
    VERBS[options.verb].run(options)


def shows_progress(options: argparse.Namespace) -> bool:
    """Return whether the app should say how far a command is."""
    named = getattr(options, "collection", None) is not None
    return named and options.verb not in QUICK and not getattr(options, "table", None)


def main() -> int:
    """Run a verb; a person's mistake is one sentence and exit status 1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may lack letters of a name
            stream.reconfigure(errors="backslashreplace")
    options = parser().parse_args()
    try:
        with ExitStack() as stack:
            if shows_progress(options):
                root, name = root_of(options), options.collection
                work = getattr(options, "work", None)
                part = getattr(options, "part", None)
                stack.enter_context(taken_turn(options.verb, name, root, work, part))
                stack.enter_context(telling(root, name, options.verb))
            run(options)
    except (KeyboardInterrupt, Cancelled):
        print("Stopped; run the same command again to go on.", file=sys.stderr)
        return 130
    except Exception as error:
        if (sentence := sentence_of(error)) is None:
            raise
        print(one_line(sentence), file=sys.stderr)
        return 1
    return 0


def sentence_of(error: Exception) -> str | None:
    """Return what a person is told of an error; None for a fault of the program."""
    if isinstance(error, LookupError | ValueError):
        return str(error.args[0] if error.args else error)
    if isinstance(error, Damaged):
        return (
            f"'{error}' is damaged. Remove it and run the same command again: only "
            "what it holds is made anew."
        )
    if isinstance(error, OSError) or is_full(error):  # DuckDB's is its own
        return trouble(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
