"""Which images of a source are wanted, and the texts they were shown with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from core.columns import free_names
from core.data.sources import Record, Source, selected
from core.data.sources.captions import TEXTS
from core.data.sources.names import plain_text
from core.data.sources.records import read_index


@dataclass(frozen=True)
class Prompts:
    """What texts a text-to-image model was shown its images with.

    Attributes:
        column: That holds them; "" takes the first of `TEXTS` that is there.
        other: The text of images that have none.
    """

    column: str = ""
    other: str = ""

    def said_of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield records with their text as `caption`.

        Raises:
            ValueError: If no image has a text and none is given for all.
        """
        columns = (self.column,) if self.column else TEXTS
        seen, has_text = set(), bool(self.other)
        for record in records:
            seen |= record.facts.keys()
            texts = (record.facts.get(column, "").strip() for column in columns)
            text = next(filter(None, texts), "")
            has_text = has_text or bool(text)
            facts = dict(record.facts)
            if "caption" in facts and "caption" not in columns:  # not the text
                name = free_names(["caption", *facts], ["caption"])["caption"]
                facts[name] = facts["caption"]
            yield replace(record, facts=facts | {"caption": text or self.other})
        if not has_text:
            raise ValueError(
                "The model is conditional on text and no image has a "
                f"{' or '.join(map(repr, columns))}; there are: "
                f"{', '.join(sorted(seen)) or 'no columns'}. Put a metadata.csv with "
                "'file_name' and 'caption' beside the images, or a .txt for each; "
                "name another column with --caption; or give one text for all with "
                "--prompt."
            )


@dataclass(frozen=True)
class Selection:
    """Which images of a source are wanted.

    Attributes:
        split: "train", "validation", "test" or "all"; None for the one that the path is
            named after, if it is, and otherwise "train".
        keep: Allowed values by column.
        index: File of positions among those, or None for all.
        limit: At most as many, the first ones; None for all.
        prompts: Their texts, where a model is conditional on them.
        allow_outside: Whether tables may name files out of the folder.
        drop_duplicates: Whether an image whose pixels came before is left out.
        exclude_opted_out: Whether an image whose file forbids training is left out.
        classes: Columns whose combination is the class; None for the usual one.
        credits: File that says whose they are.
    """

    split: str | None = None
    keep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    index: Path | None = None
    limit: int | None = None
    prompts: Prompts | None = None
    allow_outside: bool = False
    drop_duplicates: bool = False
    exclude_opted_out: bool = False
    classes: tuple[str, ...] | None = None
    credits: Path | None = None

    def records(self, source: Source) -> Iterable[Record]:
        """Yield the wanted records of a source."""
        if self.prompts is not None:
            return self.prompts.said_of(replace(self, prompts=None).records(source))
        return self._wanted(source)

    def _wanted(self, source: Source) -> Iterator[Record]:
        index = None if self.index is None else read_index(self.index)
        records = selected(source, self.split, dict(self.keep), index)
        for number, record in enumerate(records):
            if number == self.limit:
                return
            yield record


def parse_keep(texts: list[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return allowed values by column, written "label=automobile,horse".

    Raises:
        ValueError: If one does not read so.
    """
    for text in texts:
        if not all(text.partition("=")):
            raise ValueError(
                f"'{text}' says nothing to keep. Write COLUMN=VALUE,VALUE, such as "
                "label=automobile,horse."
            )
    pairs = [plain_text(text).split("=", 1) for text in texts]
    return tuple((column, tuple(values.split(","))) for column, values in pairs)
