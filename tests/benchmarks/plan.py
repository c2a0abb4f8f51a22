"""Whether a plan keeps its word: what it says against what a build then takes.

The build is Fashion-2's, of fewer images and steps, in a folder of its own.
"""

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from core.config import CollectionConfig
from core.explorer.explorer import open_explorer
from core.presets import collection_config
from precompute.planning.plan import plan
from precompute.stages.build import build
from tests.benchmarks.machine import facts

EXAMPLES, STEPS, SAMPLES = 240, 300, 8


def config() -> CollectionConfig:
    """Return what is planned and built."""
    base = collection_config("fashion2")
    return replace(
        base,
        data=replace(base.data, limit=EXAMPLES),
        train=replace(base.train, num_steps=STEPS),
        samples=replace(base.samples, num_samples=SAMPLES),
    )


def run(collection: str, root: Path | None) -> dict:
    """Return planned and measured seconds and bytes; the ratio of the whole last."""
    with TemporaryDirectory() as folder:
        root, work = Path(folder) / "root", Path(folder) / "work"
        started = time.perf_counter()
        planned = plan(config(), work).costs()
        planning = time.perf_counter() - started
        started = time.perf_counter()
        build(config(), root, work, "cpu")
        measured = time.perf_counter() - started
        costs = open_explorer("fashion2", root).provenance["costs"]
        disk = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    seconds = {name: cost.seconds for name, cost in planned.items()}
    ratio = sum(seconds.values()) / measured
    stages = {name: seconds[name] / costs[name] for name in costs if costs[name]}
    # The gallery's queries stay in the work folder.
    kept = sum(cost.disk for name, cost in planned.items() if name != "samples")
    return {
        **facts(),
        "planned_seconds": seconds,
        "measured_seconds": costs | {"in all": measured},
        "planning_seconds": planning,
        "planned/measured by stage": stages,
        "planned_bytes": kept,
        "measured_bytes": disk,
        "lines": [
            *(f"{name} planned/measured {r:.2f}" for name, r in stages.items()),
            f"disk planned/measured {kept / disk:.2f}",
            f"planned/measured {ratio:.2f}",
        ],
    }
