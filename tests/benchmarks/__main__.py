"""Run a benchmark by name; the result is printed as JSON."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from tests.benchmarks import (
    cifar_gpu,
    curvature,
    errors,
    estimators,
    fidelity,
    gradients,
    kills,
    kinds,
    looks,
    lora,
    map,
    noise,
    pictures,
    plan,
    queries,
    question,
    scale,
    self_influence,
    sizes,
    soak,
    stable_diffusion,
    waits,
)

BENCHMARKS = {
    "curvature": curvature.run,
    "errors": errors.run,
    "estimators": estimators.run,
    "fidelity": fidelity.run,
    "gradients": gradients.run,
    "growth": gradients.run_growth,
    "kills": kills.run,
    "kinds": kinds.run,
    "looks": looks.run,
    "lora": lora.run,
    "map": map.run,
    "noise": noise.run,
    "pictures": pictures.run,
    "plan": plan.run,
    "queries": queries.run,
    "question": question.run,
    "scale": scale.run,
    "self_influence": self_influence.run,
    "sizes": sizes.run,
    "soak": soak.run,
    "stable_diffusion": stable_diffusion.run,
    "stable_diffusion_pass": stable_diffusion.run_pass,
    "waits": waits.run,
    "self_influence_methods": self_influence.run_methods,
}


def run_cifar(options: argparse.Namespace) -> dict:
    """Return the timings of the paper's UNet: full size on a GPU, otherwise a toy."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = cifar_gpu.GPU_SIZE if device == "cuda" else cifar_gpu.TINY_SIZE
    chosen = {name: getattr(options, name) for name in ("examples", "draws")}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return cifar_gpu.run(replace(size, **chosen), options.out, device)


def main() -> None:
    """Parse the name, run, print and perhaps save."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("name", choices=[*BENCHMARKS, "cifar"])
    parser.add_argument("--collection", default="glyphs")
    parser.add_argument("--root", type=Path, help="folder of published collections")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--examples", type=int, help="images, for cifar")
    parser.add_argument("--draws", type=int, help="draws per image, for cifar")
    parser.add_argument("--queries", type=int, help="samples, for errors")
    parser.add_argument("--repeats", type=int, help="of all draws, for errors")
    parser.add_argument("--before", type=Path, help="an older checkout, for waits")
    parser.add_argument(
        "--sizes", action="store_true", help="try other sketches, too, for errors"
    )
    options = parser.parse_args()
    if options.name == "cifar":
        result = run_cifar(options)
    else:
        names = {
            "errors": ("queries", "repeats", "sizes"),
            "waits": ("before", "repeats"),
        }
        names = names.get(options.name, ())
        more = {name: getattr(options, name) for name in names}
        more = {name: value for name, value in more.items() if value is not None}
        result = BENCHMARKS[options.name](options.collection, options.root, **more)
    if options.before and options.out and options.out.exists():
        result = json.loads(options.out.read_text()) | result  # the other waits stay
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    for line in result.get("lines", []):
        print(line)


if __name__ == "__main__":
    main()
