"""ArtBench-10.csv, the only source of the artists of ArtBench's images."""

from collections.abc import Iterable
from pathlib import Path

from core.data.sources.matching import even
from core.data.sources.text_tables import read_table
from core.files.texts import count_of, listed

ARTBENCH_TABLE = "ArtBench-10.csv"
ARTBENCH_FACTS = ("artist", "url", "is_public_domain")


class ArtBenchTable:
    """What the table says of each image.

    Attributes:
        by_name: Facts by (split, style, file name), and by (None, style, file name).
        by_row: Facts by (split, row of the batches).
        styles: All of them.
    """

    def __init__(self, path: Path):
        """Read the table."""
        self.by_name, self.by_row, self.styles = {}, {}, set()
        for row in read_table(path).rows:
            facts = {name: row.get(name, "") for name in ARTBENCH_FACTS}
            facts["title"] = artwork_title(row.get("name", ""))
            split, style = row.get("split"), row.get("label")
            name = even(row.get("name", ""))
            self.styles.add(style)
            self.by_name[split, style, name] = facts
            self.by_name[None, style, name] = facts
            self.by_row[split, row.get("cifar_index")] = facts

    def of(self, facts: dict[str, str], name: str) -> dict[str, str]:
        """Return what is said of an image file, by its place and name."""
        style, name = facts.get("label"), even(name)
        row = self.by_name.get((facts.get("split"), style, name))
        return row or self.by_name.get((None, style, name), {})

    def notes(self, images: Iterable[tuple[dict[str, str], str]]) -> list[str]:
        """Return a sentence on the images, each as in `of`, that have no row."""
        images = list(images)
        without = [name for facts, name in images if not self.of(facts, name)]
        if not without:
            return []
        return [
            f"{len(without):,} of {count_of(len(images), 'image')} "
            f"{'has' if len(without) == 1 else 'have'} no row in '{ARTBENCH_TABLE}': "
            f"{listed(without)}."
        ]


def artwork_title(name: str) -> str:
    """Return the title in a file name such as "claude-monet_the-seine-1874.jpg"."""
    stem = name.rsplit(".", 1)[0]
    return stem.split("_", 1)[-1].replace("-", " ")


def artbench_table(folder: Path) -> ArtBenchTable | None:
    """Return ArtBench's table if it lies in a folder or up to two above it."""
    for parent in (folder, *folder.parents[:2]):
        if (parent / ARTBENCH_TABLE).is_file():
            return ArtBenchTable(parent / ARTBENCH_TABLE)
    return None
