"""`site`: a collection's gallery as a folder of web pages, to put anywhere."""

import argparse
from contextlib import closing, suppress
from pathlib import Path

from precompute.machinery.out import folder_out
from precompute.machinery.progress import Bar
from precompute.verbs.options import add_root

HELP = "the gallery as a folder of web pages"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--collection", required=True)
    add_root(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder to make")


def run(options: argparse.Namespace) -> None:
    """Write the site; print what it takes and which page to open."""
    from core.explorer.explorer import open_explorer
    from core.report.site import Site, write_site

    evidence = None
    with closing(open_explorer(options.collection, options.root)) as explorer:
        with suppress(LookupError, ValueError):  # nothing was retrained
            evidence = explorer.evidence()
        with folder_out(options.out) as folder, Bar(desc="pages", leave=False) as bar:

            def show(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            size = write_site(Site(explorer, folder, evidence), show)
    print(f"{options.out / 'index.html'}: {size / 1e6:.1f} MB in all")
