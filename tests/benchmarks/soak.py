"""Visitors who come, ask and go for half an hour: does the app's memory stay flat?

A server of its own answers eight visitors at a time. Each opens a link to a random
image, seed and lenses on a random page, and then asks more by what the page offers:
images of the gallery, sets of columns, other pages, the browser's back, an image of
one's own. A tab closes, now and then in the middle of an answer, and another visitor
comes. A question counts as asked only if the address says so. Linux only.
"""

import random
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from core.config import DATA_DIR
from core.explorer.explorer import open_explorer
from core.files import images
from tests.benchmarks import machine
from tests.helpers.server import running_app
from tests.helpers.visitors import Visitor

SECONDS = 1800
VISITORS = 8
WARM = 0.33  # of the time, until caches are full
LENSES = (
    "ekfac.loss",
    "kfac.elbo",
    "ekfac.loss.0-500",
    "gradient.loss",
    "clip",
    "pixel",
)
PAGES = ("", "", "", "measurements", "timesteps", "methods", "groups", "collections")
GO = ("", "measurements", "timesteps", "methods", "map", "groups", "evidence")
PRESETS = ("Influence and similarity", "Three measurements", "Structure or detail")
MOST_QUESTIONS = 6  # of one visit
WAIT = 240  # seconds for one page


def answered(
    visitor: Visitor, chance: random.Random, counts: Counter, end: float
) -> bool:
    """Wait for a page's answers, unless the visitor leaves before; return whether."""
    if chance.random() < 0.1:
        visitor.wait_until(lambda page: False, chance.uniform(0, 2))
        counts["left in the middle"] += 1
        return False
    wait = min(WAIT, max(5.0, end - time.monotonic() + 20))
    done = visitor.wait_until(lambda page: not page.progress, wait)
    counts["answered" if done else "not answered in time"] += 1
    return done and time.monotonic() < end


def ask_more(visitor: Visitor, chance: random.Random, counts: Counter) -> bool:
    """Do one thing that a page offers; return whether the address says so."""
    gallery = visitor.pictures("Gallery")
    ways = ["another page", "back"]
    ways += ["an image of the gallery"] * 2 if gallery else []
    ways += ["a set of columns"] if visitor.offers(PRESETS[0]) else []
    ways += ["an image of one's own"] if visitor.offers("Upload") else []
    way, before = chance.choice(ways), (visitor.page, visitor.link)
    if way == "another page":
        visitor.go(chance.choice(GO))
    elif way == "back":
        if not visitor.back():
            return False
    elif way == "an image of the gallery":
        visitor.pick("Gallery", chance.choice(gallery))
    elif way == "a set of columns":
        visitor.choose(chance.choice(PRESETS))
    else:
        noise = np.random.default_rng(chance.randrange(2**32))
        pixels = noise.integers(0, 256, (3, 64, 64), dtype=np.uint8)
        visitor.choose("Upload")
        visitor.wait_until(lambda page: page.offers_upload, WAIT)
        visitor.upload(images.png(pixels))
        visitor.submit_upload()
    visitor.wait_until(lambda page: (page.page, page.link) != before, 5)
    heard = (visitor.page, visitor.link) != before
    counts[way if heard else f"{way}, as before"] += 1
    return heard


def run(collection: str, root: Path | None, seconds: float = SECONDS) -> dict:
    """Return memory over time, and how many answers were given and went wrong."""
    root = root or DATA_DIR / "collections"
    explorer = open_explorer(collection, root)
    examples = [int(example) for example in explorer.examples.table.index]
    samples = [int(sample) for sample in explorer.gallery.index]
    explorer.close()
    counts, end = Counter(), time.monotonic() + seconds

    def link(chance: random.Random) -> str:
        lenses = "~".join(chance.sample(LENSES, 2))
        which = chance.choice([
            f"example={chance.choice(examples)}",
            f"sample={chance.choice(samples)}",
            f"seed={chance.randrange(10**6)}&sampler=ddim&steps=5&guidance=1",
        ])
        return f"collection={collection}&{which}&lenses={lenses}"

    def visit(number: int, address: str) -> None:
        chance = random.Random(f"soak/{number}")
        while time.monotonic() < end:
            visitor = Visitor(address)
            visitor.open(link(chance), chance.choice(PAGES))
            asked = 1
            while answered(visitor, chance, counts, end):
                if asked == chance.randint(2, MOST_QUESTIONS):
                    break
                asked += ask_more(visitor, chance, counts)
            counts["questions"] += asked
            counts["tracebacks"] += len(visitor.errors)
            counts["visits"] += 1
            visitor.close()

    with running_app(root) as server:
        threads = [
            threading.Thread(target=visit, args=(number, server.address))
            for number in range(VISITORS)
        ]
        for thread in threads:
            thread.start()
        times, megabytes = [], []
        while time.monotonic() < end:
            times.append(seconds - (end - time.monotonic()))
            megabytes.append(server.megabytes())
            time.sleep(min(5.0, seconds / 60))
        for thread in threads:
            thread.join()
    times, megabytes = np.array(times), np.array(megabytes)
    warm = times > WARM * seconds
    slope = np.polyfit(times[warm], megabytes[warm], 1)[0]
    return {
        "collection": collection,
        "seconds": round(seconds),
        "visitors_at_once": VISITORS,
        **counts,
        "megabytes": {
            "start": round(megabytes[0]),
            "warm": round(megabytes[warm][0]),
            "end": round(megabytes[-1]),
            "most": round(megabytes.max()),
        },
        "slope_megabytes_per_minute": round(60 * slope, 2),
        "curve_megabytes": [
            round(m) for m in megabytes[:: max(1, len(megabytes) // 40)]
        ],
        "machine": machine.processor(),
    }
