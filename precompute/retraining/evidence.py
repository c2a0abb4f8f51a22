"""Measure the retrained models, score the same samples, and store both as evidence.

Every retrained model measures the gallery's first samples with the same draws, so that
the costs of two models differ by the models alone. Scores come from `Explorer.answer`,
the code that answers in the app. A finished model or lens is never computed again.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from core.checks import check_fields
from core.config import CollectionConfig, RetrainConfig, config_from_dict
from core.data.datasets import load_dataset
from core.engine.query import QUERY_FOLDS, timestep_costs
from core.evidence.evaluation import predicted_changes
from core.evidence.stored import (
    GROUP_COLUMNS,
    LENS,
    MODEL,
    OWN,
    PICTURE_COLUMNS,
    RANDOM,
    Evidence,
    evidence_folder,
    group_members,
    group_name,
    groups_left_out,
    read_evidence,
    write_evidence,
)
from core.explorer.explorer import Explorer, open_explorer
from core.files.table_files import read_table, write_table
from core.files.whole import Damaged
from core.lenses import METHODS, Lens
from core.measure.draws import keyed_generator, subset_masks
from core.measure.likelihood import log_probability
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser, Subject
from core.rules import Number, Whole
from core.scores.baselines import mean_eigenvalue, trak_damping
from core.scores.influence import centred
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import DEPENDS_ON, open_workspace
from precompute.retraining.ablations import gradient_bytes, gradient_variants
from precompute.retraining.jobs import (
    identity_of,
    is_measured,
    model_facts,
    retrain_folder,
)
from precompute.retraining.ready import check_evidence, needed_weights
from precompute.retraining.redraw import regenerated
from precompute.stages.samples import make_samples

PACKAGES = ("torch", "diffusers", "numpy", "scipy")
GROUP_METHODS = ("ekfac", "trak", "clip")  # that are asked about whole groups
DAMPED = ("ekfac", "kfac", "trak", "d-trak")  # whose damping is swept
RELATIVE_DAMPINGS = (1e-6, 1e-5, 1e-4, 1e-2, 0.1, 1.0, 10.0)  # of mean eigenvalue
PAPER_DAMPING = 1e-8  # App. J.5
QUERY_DRAWS = (16, 64, 256)  # the app's own is one of them, and asked anyway
COSTS = ("sample_id", "measurement", "low", "high", "value", "standard_error")


@dataclass(frozen=True)
class MeasureConfig:
    """How every retrained model is measured."""

    num_samples: int = 20  # the first of the gallery
    num_draws: int = 256  # of timesteps and noise, per sample and measurement
    num_bands: int = 8  # of timesteps, for the loss
    num_pictures: int = 8  # samples drawn again; models of random halves draw none
    probability_draws: int = 2  # of the log-probability; 0 leaves it out
    # Of its solver. All models share its draws and most of its error, so it need not be
    # as small as for a value that stands alone.
    probability_tolerance: float = 1e-3

    def fingerprint(self) -> str:
        """Return 12 hex digits that identify the settings."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


MEASURE_RULES = {
    "num_samples": Whole(1),
    "num_draws": Whole(QUERY_FOLDS, step=QUERY_FOLDS),
    "num_bands": Whole(1),
    "num_pictures": Whole(0),
    "probability_draws": Whole(0),
    "probability_tolerance": Number(0, 1, above=True, below=True),
}


# --- costs ---------------------------------------------------------------------------


def drawn_rows(
    denoiser: Denoiser,
    subject: Subject,
    measurement: str,
    settings: MeasureConfig,
    seed: int,
) -> list[tuple]:
    """Return (measurement, low, high, value, standard error) of the whole and of bands.

    Bands share the draws of the whole and sum to it.
    """
    timesteps, costs, weights = timestep_costs(
        denoiser, subject, measurement, settings.num_draws, seed
    )
    weighted = (weights * costs).double()
    edges = np.linspace(0, denoiser.num_train_timesteps, settings.num_bands + 1)
    bands = [(-1, -1), *zip(edges[:-1].astype(int), edges[1:].astype(int), strict=True)]
    rows = []
    for low, high in bands:
        inside = (timesteps >= low) & (timesteps < high) if low >= 0 else timesteps >= 0
        folds = (weighted * inside).view(QUERY_FOLDS, -1).mean(1)
        error = folds.std() / QUERY_FOLDS**0.5
        rows.append((
            measurement,
            int(low),
            int(high),
            float(folds.mean()),
            float(error),
        ))
    return rows


def measured_rows(
    denoiser: Denoiser, x_0: torch.Tensor, label: int | None, settings, seed: int
) -> list[tuple]:
    """Return all costs of one sample in one model, as in `drawn_rows`."""
    subject = Subject(x_0, label)
    rows = drawn_rows(denoiser, subject, "loss", settings, seed)
    rows += drawn_rows(denoiser, subject, "elbo", settings, seed)
    if settings.probability_draws:
        value, error = log_probability(
            denoiser,
            subject,
            seed,
            settings.probability_draws,
            settings.probability_tolerance,
        )
        # A cost, as all measurements are: -log p, in nats.
        rows.append(("log-probability", -1, -1, -value, error))
    return rows


def measure_model(
    weights: bytes,
    samples: dict[str, torch.Tensor],
    settings: MeasureConfig,
    seed: int,
    path: Path,
    device: str = "cpu",
) -> pd.DataFrame:
    """Return every cost of every sample in one model, from `path` if it is there.

    Args:
        weights: The model's file.
        samples: The gallery, as `make_samples` returns it.
        settings: What to measure.
        seed: The collection's seed, of the draws that all models share.
        path: Where the result is kept.
        device: Where to compute.

    Returns:
        The columns `COSTS`.
    """
    if path.exists():
        return kept_table(path)
    denoiser = denoiser_from_bytes(weights).to(device)
    rows = []
    for sample_id in range(settings.num_samples):
        label = int(samples["labels"][sample_id])
        label = None if denoiser.null_label is None else label
        x_0 = samples["x_0"][sample_id].to(device)
        found = measured_rows(denoiser, x_0, label, settings, seed)
        rows += [(sample_id, *row) for row in found]
    return keep_table(pd.DataFrame(rows, columns=COSTS), path)


def keep_table(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Write a table as a kill leaves it whole or absent; return it."""
    write_table(path, table)
    return table


def kept_table(path: Path) -> pd.DataFrame:
    """Return what `keep_table` wrote.

    Raises:
        ValueError: If it is damaged.
    """
    try:
        return read_table(path)
    except Damaged:
        raise ValueError(
            f"'{path}' is damaged. Remove it and run the same command again: only what "
            "it holds is made anew."
        ) from None


def measure_models(
    config: CollectionConfig,
    settings: MeasureConfig,
    full: bytes,
    samples: dict[str, torch.Tensor],
    folder: Path,
    part: tuple[int, int] = (0, 1),
    device: str = "cpu",
    known: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what the full model and each one that was trained again say of samples.

    Args:
        config: The full model's settings.
        settings: What to measure.
        full: The full model's weights.
        samples: The gallery.
        folder: Where the retrained models lie, and the results.
        part: (number of this process, number of processes).
        device: Where to compute.
        known: What was measured before; these models are left out.

    Returns:
        The columns of `Evidence.measured` and of `Evidence.pictures`, for this
        process's share.
    """
    number, size = part
    folder.mkdir(parents=True, exist_ok=True)
    tables = [pd.DataFrame(columns=[*MODEL, *COSTS])]
    pictures = [pd.DataFrame(columns=PICTURE_COLUMNS)]
    paths = [None, *sorted(folder.glob("*.safetensors"))]
    how = f"{settings.fingerprint()}-{gallery_fingerprint(config)}"
    if known is not None:
        paths = [path for path in paths if not is_measured(identity(path), known)]
    for path in Bar(paths[number::size], "measurements"):
        name = "full" if path is None else path.stem
        kept = folder / f"measured-{how}-{name}.parquet"
        weights = full if path is None else path.read_bytes()
        table = measure_model(weights, samples, settings, config.seed, kept, device)
        which = identity(path)
        tables.append(table.assign(**which))
        shown = which["method"] != RANDOM or which["about"] == 0  # one stands for all
        if which["kind"] != "half" and shown:
            kept = folder / f"drawn-{how}-{name}.npy"
            count = min(settings.num_pictures, settings.num_samples)
            drawn = regenerated(config, weights, samples, count, kept, device)
            pictures.append(drawn.assign(**which))
    return (
        pd.concat(tables, ignore_index=True),
        pd.concat(pictures, ignore_index=True)[list(PICTURE_COLUMNS)],
    )


def gallery_fingerprint(config: CollectionConfig) -> str:
    """Return 12 hex digits that identify the samples that are measured."""
    return config.fingerprint(*DEPENDS_ON["samples"])


def identity(path: Path | None) -> dict:
    """Return which model a file holds, None for the full one, by column of `MODEL`."""
    return identity_of(None if path is None else model_facts(path))


# --- scores --------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A lens, and the name of what is varied besides it."""

    lens: Lens
    variant: str = ""

    def record(self) -> dict:
        """Return a value for each column of `LENS`."""
        lens, method = self.lens, METHODS[self.lens.method]
        own = method.kind == "similarity" or method.measurement is not None
        low, high = lens.timesteps or (-1, -1)
        return {
            "method": lens.method,
            "measurement": OWN if own else lens.measurement,
            "low": low,
            "high": high,
            "damping": float("nan") if lens.damping is None else lens.damping,
            "num_draws": lens.num_draws,
            "variant": self.variant,
        }


def default_form(explorer: Explorer) -> str:
    """Return "full" where the full index came along, else "sketch"."""
    return "full" if explorer.engine.scoring.indexed is not None else "sketch"


def dampings(explorer: Explorer, method: str) -> dict[str, float]:
    """Return a method's own damping, and the mean eigenvalue it is a multiple of."""
    scoring = explorer.engine.scoring
    if method in scoring.eigenvalues:
        mean = float(scoring.eigenvalues[method].cpu().double().numpy().mean())
        return {"own": scoring.own_damping, "mean_eigenvalue": mean}
    features = scoring.method_file(method).features
    mean = float(mean_eigenvalue(features))
    return {"own": float(trak_damping(features)), "mean_eigenvalue": mean}


def asked_lenses(explorer: Explorer) -> list[Asked]:
    """Return every lens that evidence is wanted for, of the methods there are."""
    facts = explorer.method_facts()
    methods = facts[facts["available"]]["method"].tolist()
    form = default_form(explorer)
    asked = []
    for method in methods:
        own = METHODS[method].kind == "similarity" or METHODS[method].measurement
        for measurement in ("loss",) if own else ("loss", "elbo"):
            lens = Lens(method, measurement, form=form)
            asked.append(Asked(lens))
            if method in DAMPED:
                known = dampings(explorer, method)
                scale = known["mean_eigenvalue"]
                swept = [PAPER_DAMPING, *(scale * r for r in RELATIVE_DAMPINGS)]
                asked += [
                    Asked(replace(lens, damping=damping))
                    for damping in swept
                    if not np.isclose(damping, known["own"], rtol=1e-3, atol=0)
                ]
    for measurement in ("loss", "elbo"):
        lens = Lens("ekfac", measurement, form=form)
        others = [count for count in QUERY_DRAWS if count != lens.num_draws]
        asked += [Asked(replace(lens, num_draws=count)) for count in others]
        if form != "sketch":
            asked.append(Asked(replace(lens, form="sketch"), "sketch"))
    return asked


def score_samples(
    explorer: Explorer, settings: MeasureConfig, folder: Path
) -> pd.DataFrame:
    """Return the scores of all pictures for each sample under each lens.

    Sample by sample, so that lenses share what they have in common.

    Returns:
        The columns of `Evidence.scores`.
    """
    asked, tables = asked_lenses(explorer), []
    text = json.dumps([one.record() for one in asked]) + explorer.fingerprint
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    for sample_id in Bar(range(settings.num_samples), "scores"):
        path = folder / f"scores-{key}-{sample_id}.parquet"
        if not path.exists():
            keep_table(sample_scores(explorer, sample_id, asked, settings), path)
        tables.append(kept_table(path))
    return pd.concat(tables, ignore_index=True)


def sample_scores(
    explorer: Explorer, sample_id: int, asked: list[Asked], settings: MeasureConfig
) -> pd.DataFrame:
    """Return one sample's scores: a row per lens, per band of timesteps, and random."""
    query = explorer.query_from_gallery(sample_id)
    rows = []
    for one in asked:
        answer = explorer.answer(query, one.lens)
        scores = answer.scores.astype(np.float32)
        rows.append(one.record() | {"source": answer.source, "scores": scores})
    lens = Lens("ekfac", "loss", form=default_form(explorer))
    bands = explorer.band_answers(query, lens, settings.num_bands)
    edges = list(bands.edges)
    for low, high, scores in zip(edges[:-1], edges[1:], bands.scores, strict=True):
        record = Asked(replace(lens, timesteps=(int(low), int(high)))).record()
        rows.append(
            record | {"source": bands.source, "scores": scores.astype(np.float32)}
        )
    rows.append(random_scores(explorer, sample_id))
    return pd.DataFrame(rows).assign(sample_id=sample_id)


def variant_table(variant: str, num_draws: int, scores: np.ndarray) -> pd.DataFrame:
    """Return rows of EK-FAC scores (Q, N) from gradients that were kept otherwise."""
    record = Asked(Lens("ekfac", "loss", num_draws=num_draws), variant).record()
    rows = [
        record | {"sample_id": i, "source": variant, "scores": row.astype(np.float32)}
        for i, row in enumerate(centred(scores.astype(np.float64)))
    ]
    return pd.DataFrame(rows)


def random_scores(explorer: Explorer, sample_id: int) -> dict:
    """Return a row of scores that know nothing of the sample."""
    generator = keyed_generator(explorer.engine.seed, "random scores", sample_id)
    scores = torch.randn(explorer.num_examples, generator=generator).numpy()
    record = Asked(Lens("clip")).record() | {"method": RANDOM}
    return record | {"source": "random", "scores": scores}


# --- groups --------------------------------------------------------------------------


def group_predictions(
    explorer: Explorer, names: list[str], settings: MeasureConfig, folder: Path
) -> pd.DataFrame:
    """Return what is predicted of each sample when each of some groups is left out.

    Args:
        explorer: The collection.
        names: The groups, as `core.evidence.stored.group_name` calls them.
        settings: How many samples.
        folder: Where finished samples are kept.

    Returns:
        The columns `GROUP_COLUMNS`.
    """
    text = json.dumps([names, GROUP_METHODS]) + explorer.fingerprint
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    if not names:
        return pd.DataFrame(columns=GROUP_COLUMNS)
    tables = []
    for sample_id in Bar(range(settings.num_samples), "groups"):
        path = folder / f"groups-{key}-{sample_id}.parquet"
        if not path.exists():
            keep_table(sample_groups(explorer, sample_id, names), path)
        tables.append(kept_table(path))
    return pd.concat(tables, ignore_index=True)


def sample_groups(explorer: Explorer, sample_id: int, names: list[str]) -> pd.DataFrame:
    """Return one sample's rows of `group_predictions`."""
    query, table = explorer.query_from_gallery(sample_id), explorer.examples.table
    members = np.stack([group_members(name, table) for name in names])
    shares = np.full(len(names), np.nan)
    if query.label is not None:
        own = np.ones(len(table), dtype=bool)
        for column, value in explorer.classes.loc[query.label].items():
            own &= group_members(group_name(column, value), table)
        shares = members[:, own].mean(1)
    facts = explorer.method_facts()
    known = facts[facts["available"]]["method"].tolist()
    rows = []
    for method in [name for name in GROUP_METHODS if name in known]:
        similar = METHODS[method].kind == "similarity"
        for measurement in ("loss",) if similar else ("loss", "elbo"):
            lens = Lens(method, measurement)
            answer = explorer.answer(query, lens)
            errors = np.full(len(names), np.nan)
            if METHODS[method].has_errors:
                errors = explorer.uncertainty(query, answer).of_groups(members)
            record = {"method": method, "measurement": OWN if similar else measurement}
            changes = predicted_changes(answer.scores[None], ~members)[0]
            for name, share, change, error in zip(
                names, shares, changes, errors, strict=True
            ):
                rows.append(
                    {"group": name, "sample_id": sample_id, "share": share}
                    | record
                    | {"predicted": change, "standard_error": error}
                )
    return pd.DataFrame(rows)[list(GROUP_COLUMNS)]


# --- evidence ------------------------------------------------------------------------


def lean(scores: pd.DataFrame, masks: np.ndarray, num_draws: int) -> pd.DataFrame:
    """Return the scores with only as much kept as the tables and the app need.

    The scores of a lens as the app asks it are rounded to eleven bits, far below their
    errors, so that the file compresses. Of all other lenses, which ask about a part or
    vary a setting, `predicted` keeps what they say of each subset.
    """
    asked = scores["damping"].isna() & (scores["low"] < 0) & (scores["variant"] == "")
    asked &= scores["num_draws"] == num_draws
    kept, predicted = [], []
    for values, plain in zip(scores["scores"], asked, strict=True):
        values = np.asarray(values, np.float32)
        if plain:
            bits = values.view(np.int32).astype(np.int64) + (1 << 11)
            kept.append((bits & -(1 << 12)).astype(np.int32).view(np.float32))
            predicted.append(None)
        else:
            change = predicted_changes(values.astype(np.float64), masks)
            kept.append(None)
            predicted.append(change.astype(np.float32))
    return scores.assign(scores=kept, predicted=predicted)


def assemble(
    config: CollectionConfig,
    retrained: RetrainConfig,
    settings: MeasureConfig,
    explorer: Explorer,
    measured: pd.DataFrame,
    scores: pd.DataFrame,
    pictures: pd.DataFrame,
    groups: pd.DataFrame,
) -> Evidence:
    """Return the evidence, with the recipe that made it."""
    halves = measured[measured["kind"] == "half"]
    num_subsets = 0 if halves.empty else int(halves["subset"].max()) + 1
    seeds = int(halves["seed"].nunique())  # of some of the halves, perhaps
    recipe = {
        "settings": config.to_dict(),
        "retrain": asdict(retrained) | {"num_subsets": num_subsets, "num_seeds": seeds},
        "measure": asdict(settings),
        "num_examples": explorer.num_examples,
        "num_draws": Lens().num_draws,
        "form": default_form(explorer),
        "dampings": {
            method: dampings(explorer, method)
            for method in DAMPED
            if method in set(scores["method"])
        },
        "bytes_per_example": gradient_bytes(explorer),
        "collection": explorer.fingerprint,
        "versions": {name: version(name) for name in PACKAGES},
    }
    masks = subset_masks(
        explorer.num_examples, max(num_subsets, 1), config.seed, retrained.share
    )
    scores = lean(scores, masks, recipe["num_draws"])
    return Evidence(recipe, masks, measured, scores, pictures, groups)


def check_samples(explorer: Explorer, samples: dict[str, torch.Tensor]) -> None:
    """Refuse a collection whose gallery is not what was measured.

    Raises:
        ValueError: If the pictures differ.
    """
    for sample_id, x_0 in enumerate(samples["x_0"].numpy()):
        query = explorer.query_from_gallery(sample_id)
        if not np.allclose(explorer.engine.x_0(query), x_0, atol=1e-3):
            raise ValueError(
                f"Sample {sample_id} of the collection '{explorer.name}' is not the "
                "picture that the retrained models measured. Build the collection "
                "with the same --work folder."
            )


def check_extends(
    stored: Evidence, config: CollectionConfig, settings: MeasureConfig
) -> None:
    """Refuse to add to evidence that was measured in another way.

    Raises:
        ValueError: If the draws or the samples differ; the message says which.
    """
    other = gallery_fingerprint(config_from_dict(stored.recipe["settings"]))
    if other != gallery_fingerprint(config):
        raise ValueError(
            f"The stored evidence of '{config.name}' was measured on the gallery of "
            "other settings. Ask with those, or measure all models anew without --add."
        )
    found, wanted = stored.recipe["measure"], asdict(settings)
    for name, value in wanted.items():
        if found[name] != value:
            raise ValueError(
                f"The stored evidence of '{config.name}' was measured with {name} "
                f"{found[name]}, not {value}. Ask for the same, or measure all models "
                "anew without --add."
            )


def extended(
    stored: Evidence,
    measured: pd.DataFrame,
    pictures: pd.DataFrame,
    groups: pd.DataFrame,
) -> Evidence:
    """Return stored evidence and what more models measured; scores stay as they are.

    Raises:
        ValueError: If there are random subsets that the stored scores say nothing of.
    """
    halves = measured[measured["kind"] == "half"]["subset"]
    if not halves.empty and halves.max() >= len(stored.masks):
        raise ValueError(
            f"The stored evidence has {len(stored.masks)} random subsets and there is "
            f"a model of number {halves.max()}, counted from 0. Score them all anew "
            "without --add."
        )
    return replace(
        stored,
        measured=pd.concat([stored.measured, measured], ignore_index=True),
        pictures=pd.concat([stored.pictures, pictures], ignore_index=True),
        groups=groups,
    )


def make_evidence(
    config: CollectionConfig,
    root: Path,
    work: Path | None = None,
    part: tuple[int, int] = (0, 1),
    device: str = "cpu",
    asked: dict | None = None,
    add: bool = False,
) -> Path | None:
    """Measure and score what is missing, and store the evidence beside the collection.

    Args:
        config: The collection.
        root: Folder of the published collections.
        work: Folder of unfinished work, where the retrained models lie.
        part: (number of this process, number of processes): of several, each measures
            its share and stores nothing; a last call alone puts all together.
        device: Where to compute.
        asked: Values of `MeasureConfig` that are wanted; the others are as stored where
            that is added to. There are fewer samples where the gallery has fewer.
        add: Whether to keep the stored evidence and add the models it has not measured:
            neither those models nor the index that gave its scores need to be here.

    Returns:
        The folder of the evidence, or None after a share.
    """
    if part[1] == 1:
        check_evidence(config, root, work, add)
    weights = needed_weights(config, work)
    dataset, workspace = load_dataset(config.data), open_workspace(config, work)
    denoiser = denoiser_from_bytes(weights).to(device)
    samples = make_samples(config, denoiser, dataset, workspace)
    models, folder = retrain_folder(config, work), evidence_folder(root, config)
    stored = read_evidence(folder) if add else None
    usual = {} if stored is None else stored.recipe["measure"]
    settings = MeasureConfig(**(usual | (asked or {})))
    check_fields(settings, "", MEASURE_RULES)
    count = min(settings.num_samples, len(samples["x_0"]))
    settings = replace(settings, num_samples=count)
    if stored is not None:
        check_extends(stored, config, settings)
    known = None if stored is None else stored.measured
    measured, pictures = measure_models(
        config, settings, weights, samples, models, part, device, known
    )
    if part[1] > 1:
        return None
    explorer = open_explorer(config.name, root)
    check_samples(explorer, samples)
    every = measured if known is None else pd.concat([known, measured])
    groups = group_predictions(explorer, groups_left_out(every), settings, models)
    if stored is not None:
        write_evidence(folder, extended(stored, measured, pictures, groups))
        return folder
    scores = pd.DataFrame(columns=[*LENS, "sample_id", "source", "scores"])
    if "half" in set(measured["kind"]):  # without them there is nothing to rank
        tables = [score_samples(explorer, settings, models)]
        tables += [
            variant_table(variant, draws, scores[: settings.num_samples])
            for variant, draws, scores in gradient_variants(explorer, workspace, models)
        ]
        scores = pd.concat(tables, ignore_index=True)
    found = (measured, scores, pictures, groups)
    evidence = assemble(config, RetrainConfig(), settings, explorer, *found)
    write_evidence(folder, evidence)
    return folder
