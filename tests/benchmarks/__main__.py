"""Run a benchmark by name; the result is printed as JSON."""

import argparse
import json
from pathlib import Path

from tests.benchmarks import (
    curvature,
    estimators,
    gradients,
    noise,
    queries,
    self_influence,
)

BENCHMARKS = {
    "curvature": curvature.run,
    "estimators": estimators.run,
    "gradients": gradients.run,
    "noise": noise.run,
    "queries": queries.run,
    "self_influence": self_influence.run,
}


def main() -> None:
    """Parse the name, run, print and perhaps save."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--collection", default="glyphs")
    parser.add_argument("--root", type=Path, help="folder of published collections")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    result = BENCHMARKS[options.name](options.collection, options.root)
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    for line in result.get("lines", []):
        print(line)


if __name__ == "__main__":
    main()
