"""Answer the gallery under more lenses, and publish the answers; resumable.

The app shows a stored answer at once, without the model. Asks through the explorer, as
the app does, so a stored answer is what a visitor would have waited for.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from core.collection.publish import CollectionWriter
from core.collection.schema import StoredAnswer, bytes_sha256, lens_key
from core.collection.store import find_collection
from core.config import DATA_DIR
from core.explorer.explorer import Answer, Explorer, open_explorer
from core.lenses import Lens, stored_key, stored_lenses
from core.scores.errors import answer_kind, question_kind
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import load_tensors, save_tensors
from precompute.stages.levels import store_levels


def store_answers(
    root: Path,
    name: str,
    work: Path | None = None,
    lenses: Iterable[Lens] | None = None,
) -> Path:
    """Return the collection's file with the gallery answered under all lenses.

    Args:
        root: Folder of the published collections.
        name: Of the collection.
        work: Folder of unfinished work; None for `data/work`.
        lenses: To answer; None for `core.lenses.stored_lenses`. Noise levels are
            stored of the default one alone.
    """
    work = work or DATA_DIR / "work"
    with closing(open_explorer(name, root)) as explorer:
        sampler = explorer.config.samples.sampler
        lenses = stored_lenses(sampler) if lenses is None else list(lenses)
        answers = gallery_answers(explorer, lenses, work_folder(work, explorer))
    if answers:
        with CollectionWriter(root, name) as writer:
            writer.put_all_of(find_collection(root, name))
            for sample, lens, answer in answers:
                writer.put_answer(sample, stored_key(lens), answer)
            writer.publish()
    with closing(open_explorer(name, root)) as explorer:
        store_levels(explorer, root, work_folder(work, explorer))
    return find_collection(root, name)


def work_folder(work: Path, explorer: Explorer) -> Path:
    """Return the folder of a collection's unfinished answers, made if need be."""
    folder = work / explorer.name / f"answers-{explorer.fingerprint[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def gallery_answers(
    explorer: Explorer, lenses: list[Lens], folder: Path
) -> list[tuple[int, Lens, StoredAnswer]]:
    """Return the answers that the collection does not hold yet.

    Args:
        explorer: Of the collection.
        lenses: To answer, for every gallery sample.
        folder: Keeps each answer until all are there.
    """
    missing = [
        (int(sample), lens)
        for sample in explorer.gallery.index
        for lens in lenses
        if explorer.stored_answer(explorer.query_from_gallery(int(sample)), lens)
        is None
    ]
    return [
        (sample, lens, kept_answer(explorer, sample, lens, folder))
        for sample, lens in Bar(missing, "answers")
    ]


def kept_answer(
    explorer: Explorer, sample: int, lens: Lens, folder: Path
) -> StoredAnswer:
    """Return one answer, from the folder where an earlier run left it."""
    digest = bytes_sha256(lens_key(stored_key(lens)).encode())[:12]
    path = folder / f"{sample}-{digest}.safetensors"
    if not path.exists():
        answer = best_answer(explorer, sample, lens)
        tensors = {
            "scores": torch.from_numpy(answer.scores),
            "standard_errors": torch.from_numpy(errors_by_laws(explorer, answer)),
        }
        save_tensors(path, tensors, value=repr(answer.value), source=answer.source)
    tensors, facts = load_tensors(path)
    return StoredAnswer(
        tensors["scores"].numpy().astype(np.float64),
        tensors["standard_errors"].numpy().astype(np.float64),
        float(facts["value"]),
        facts["source"],
    )


def errors_by_laws(explorer: Explorer, answer: Answer) -> np.ndarray:
    """Return an answer's errors (N,) as by the laws alone.

    What repeats say is told whenever a stored answer is read.
    """
    kind = answer_kind(question_kind(answer.lens), answer.source)
    variance = np.square(answer.standard_errors)
    model = explorer.engine.scoring.error_model
    return np.sqrt(model.by_laws(variance, answer.scores, kind))


def best_answer(explorer: Explorer, sample: int, lens: Lens) -> Answer:
    """Return an answer from the full index where there is one, with all its draws."""
    draws = explorer.config.samples.num_draws
    form = "full" if explorer.engine.scoring.indexed is not None else "sketch"
    full_lens = replace(lens, num_draws=draws, form=form)
    return explorer.answer(explorer.query_from_gallery(sample), full_lens)
