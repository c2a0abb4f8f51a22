"""Run every stage and publish the collection."""

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from scipy.stats import spearmanr
from torch import Tensor

from core.clip import GLYPHS_CLIP_PATH, clip_similarity, load_clip
from core.config import DATA_DIR, CollectionConfig
from core.curvature import Curvature
from core.datasets import Dataset, load_credits, load_dataset
from core.diffusion import denoiser_from_bytes
from core.explorer import stored_key
from core.images import to_png
from core.index import GradientIndex, balance
from core.influence import (
    centred,
    draws_factor,
    fold_statistics,
    spearman_brown,
    split_reliability,
)
from core.publish import CollectionWriter
from core.sketch import Sketch, collection_sketch, packed_products
from core.store import Sample, Shard, StoredAnswer, file_sha256
from precompute.clip import embed_examples
from precompute.curvature import fit_curvature
from precompute.gradients import (
    GradientStage,
    Rows,
    compute_gradients,
    gradient_stage,
    measure_slice,
)
from precompute.parallel import (
    first_one_first,
    joined,
    own_device,
    rank_and_size,
    wait_for_all,
)
from precompute.samples import make_samples, sample_queries
from precompute.train import train
from precompute.workspace import Workspace, open_workspace, write_atomically

PACKAGES = ("torch", "diffusers", "curvlinops-for-pytorch", "open_clip_torch", "duckdb")
MODELS = DATA_DIR / "models"


@dataclass(frozen=True)
class Computed:
    """All that the stages before publishing made."""

    dataset: Dataset
    workspace: Workspace
    weights: bytes
    ekfac: Curvature
    kfac: Curvature
    samples: dict[str, Tensor]
    queries: Tensor
    losses: Tensor
    stage: GradientStage
    rows: Rows
    index: GradientIndex
    statistics: dict[str, Tensor]


def compute(
    config: CollectionConfig, root: Path, work: Path | None, device: str
) -> Computed:
    """Return what the stages up to the gradients make, running those still to do.

    Under torchrun the processes share the curvature and the gradients; the rest is done
    by the first one while the others wait.
    """
    dataset, workspace = load_dataset(config.data), open_workspace(config, work)
    weights = first_one_first(
        lambda: shipped_weights(config) or train(config, dataset, workspace, device)
    )
    denoiser = denoiser_from_bytes(weights).to(device)
    ekfac, kfac = fit_curvature(config, dataset, denoiser, workspace)
    samples = first_one_first(
        lambda: make_samples(config, denoiser, len(dataset.class_names), workspace)
    )
    queries, losses = first_one_first(
        lambda: sample_queries(config, denoiser, ekfac, samples, workspace)
    )
    stage = first_one_first(
        lambda: gradient_stage(config, dataset, denoiser, ekfac, workspace)
    )
    first_one_first(lambda: measure_slice(stage, workspace))
    rows, index, statistics = compute_gradients(
        stage, queries, workspace, index_folder(config, root), rank_and_size()
    )
    wait_for_all()
    return Computed(
        dataset,
        workspace,
        weights,
        ekfac,
        kfac,
        samples,
        queries,
        losses,
        stage,
        rows,
        index,
        statistics,
    )


def build(
    config: CollectionConfig,
    root: Path,
    work: Path | None = None,
    device: str | None = None,
) -> Path | None:
    """Run the stages that have no result yet, publish, and return the collection file.

    Args:
        config: What to build.
        root: Folder of the published collections.
        work: Folder of unfinished work; None for `data/work`.
        device: Where to compute; None for the GPU where there is one.

    Returns:
        The path of the published file; None in all processes but the first.
    """
    device = own_device(device)
    with joined(device):
        made = compute(config, root, work, device)
        return publish(config, root, made) if rank_and_size()[0] == 0 else None


def publish(config: CollectionConfig, root: Path, made: Computed) -> Path:
    """Embed the pictures, assess the scores, and write the collection file."""
    dataset, workspace, stage = made.dataset, made.workspace, made.stage
    rows, queries, statistics = made.rows, made.queries, made.statistics
    clip_model = load_clip(device=str(stage.denoiser.device))
    embeddings = embed_examples(clip_model, dataset)
    sample_embeddings = clip_model.embed_images(made.samples["pixels"].numpy())

    sketch = collection_sketch(
        config.seed, queries.shape[-1], config.gradients.sketch_dim
    )
    predicted, calibration, error_agreement = check_errors(
        stage, queries, rows, statistics
    )
    answers = gallery_answers(rows, calibration * predicted)
    quality = assess(stage, queries, rows, made.index, statistics, sketch)
    quality["error_agreement"] = error_agreement
    quality = {name: number_or_none(value) for name, value in quality.items()}
    with CollectionWriter(root, config.name) as writer:
        costs = stage_seconds(workspace, rows)
        put_facts(writer, config, stage, costs, quality, calibration)
        dim, checksum = config.gradients.sketch_dim, sketch.checksum()
        writer.put_meta("sketch", {"dim": dim, "checksum": checksum})
        digest = file_sha256(GLYPHS_CLIP_PATH)
        writer.put_meta("clip", {"name": clip_model.name, "sha256": digest})
        put_examples(writer, dataset)
        put_model(writer, root, made.weights, made.ekfac, made.kfac, stage, statistics)
        put_index(writer, root, rows, made.index)
        writer.put_array("clip", embeddings)
        similar = clip_similarity(sample_embeddings, embeddings).astype(np.float64)
        put_gallery(writer, config, made.samples, made.losses, answers, similar)
        return writer.publish()


def index_folder(config: CollectionConfig, root: Path) -> Path:
    """Return where the full index of a collection lies."""
    fingerprint = config.fingerprint("data", "model", "train", "curvature", "gradients")
    return root / f"{config.name}-index-{fingerprint}"


def stage_seconds(workspace: Workspace, rows: Rows) -> dict[str, float]:
    """Return the seconds that each stage took, those of interrupted runs included."""
    costs = {}
    for stage, names in {
        "train": ["train"],
        "curvature": ["curvature"],
        "samples": ["samples", "queries"],
        "gradients": ["slice"],
    }.items():
        saved = [workspace.load(stage, name) for name in names]
        costs[stage] = sum(facts["seconds"] for _, facts in filter(None, saved))
    costs["gradients"] += float(rows.arrays["seconds"].sum())
    return {stage: round(seconds, 1) for stage, seconds in costs.items()}


def weights_path(config: CollectionConfig) -> Path:
    """Return where the denoiser made with these settings ships."""
    fingerprint = config.fingerprint("data", "model", "train")
    return MODELS / f"{config.name}-{fingerprint}.safetensors"


def shipped_weights(config: CollectionConfig) -> bytes | None:
    """Return the shipped denoiser, if it was made with these settings."""
    path = weights_path(config)
    return path.read_bytes() if path.exists() else None


def ship_weights(config: CollectionConfig, weights: bytes) -> Path:
    """Put a trained denoiser where `shipped_weights` finds it; return the path."""
    write_atomically(weights_path(config), weights)
    return weights_path(config)


def by_fold(rows: Rows, name: str) -> np.ndarray:
    """Return the gallery's scores per fold, shape (F, M, N), float64."""
    return rows.arrays[name].transpose(2, 1, 0).astype(np.float64)


def gallery_answers(
    rows: Rows, training_variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centred scores (M, N) of the gallery and their standard errors (M, N).

    The error adds what the training draws leave, predicted for each score from all
    scores' folds together because the spread of one score's few folds says little, to
    the spread over the folds of the query's draws.

    Args:
        rows: Every example's results.
        training_variance: Shape (M, N).
    """
    scores = centred(by_fold(rows, "panel_train").mean(0))
    _, query_error = fold_statistics(centred(by_fold(rows, "panel_query")))
    return scores, np.sqrt(training_variance + np.square(query_error))


def check_errors(
    stage: GradientStage, queries: Tensor, rows: Rows, statistics: dict[str, Tensor]
) -> tuple[np.ndarray, float, float]:
    """Return the variance predicted for each score, and how it compares with the folds.

    Returns:
        The predicted variance (M, N); observed over predicted variance, the factor that
        treating coordinates as independent misses; and the Spearman correlation of the
        two over examples.
    """
    _, error = fold_statistics(centred(by_fold(rows, "panel_train")))
    observed = np.square(error)
    damped = stage.curvature.eigenvalues.cpu() + stage.damping
    weighted = queries.mean(1) / damped
    spread = (weighted.square() * statistics["noise"]).sum(1).double().numpy()
    predicted = np.outer(spread, rows.arrays["level"].astype(np.float64))
    agreement = spearmanr(observed.mean(0), predicted.mean(0)).statistic
    return predicted, float(observed.mean() / predicted.mean()), float(agreement)


def number_or_none(value: float) -> float | None:
    """Return the value, or None for a correlation of constants: JSON has no NaN."""
    return value if np.isfinite(value) else None


def assess(
    stage: GradientStage,
    queries: Tensor,
    rows: Rows,
    index: GradientIndex,
    statistics: dict[str, Tensor],
    sketch: Sketch,
) -> dict[str, float]:
    """Return how far the gallery's scores can be trusted, each number with its name.

    `split_reliability`: Spearman between scores from two disjoint halves of the draws;
    `reliability`: what that promises for all draws (Spearman-Brown); `draws_for_90`:
    how many draws per example would make it 0.9; `index_agreement` and
    `sketch_agreement`: Spearman of compressed with exact scores, and the share of the
    ten most influential that they keep.
    """
    by_training = by_fold(rows, "panel_train")
    half = len(by_training) // 2
    split = split_reliability(by_training[:half].mean(0), by_training[half:].mean(0))
    exact = centred(by_training.mean(0))

    damped = stage.curvature.eigenvalues.cpu() + stage.damping
    weighted = queries.mean(1) / damped
    from_index = centred(index.scores(weighted * balance(statistics["rms"])))
    sketched = sketch.apply(weighted * damped.sqrt())
    bits, scale = (np.array(rows.arrays[name]) for name in ("bits", "scale"))
    from_sketch = centred(packed_products(sketched, bits, scale))
    return {
        "split_reliability": split,
        "reliability": spearman_brown(split, 2),
        "draws_for_90": stage.config.gradients.num_draws / 2 * draws_factor(split, 0.9),
        "index_agreement": split_reliability(from_index, exact),
        "index_top_ten": top_overlap(from_index, exact, 10),
        "sketch_agreement": split_reliability(from_sketch, exact),
        "sketch_top_ten": top_overlap(from_sketch, exact, 10),
    }


def top_overlap(scores: np.ndarray, exact: np.ndarray, count: int) -> float:
    """Return the mean share of the `count` largest of `exact` found in `scores` too."""
    shares = [
        len(set(np.argsort(-a)[:count]) & set(np.argsort(-b)[:count])) / count
        for a, b in zip(scores, exact, strict=True)
    ]
    return float(np.mean(shares))


def put_facts(writer, config, stage, costs, quality, calibration) -> None:
    """Store provenance: settings, versions, seconds per stage, quality, credits."""
    writer.put_meta("title", config.title)
    writer.put_meta("settings", config.to_dict())
    writer.put_meta(
        "versions",
        {name: version(name) for name in PACKAGES}
        | {"python": platform.python_version(), "machine": machine(stage)},
    )
    writer.put_meta("costs", costs)
    writer.put_meta("quality", quality)
    writer.put_meta("damping", stage.damping)
    writer.put_meta("noise_calibration", calibration)
    writer.put_meta("credits", load_credits(config.data))
    writer.put_meta("captions", config.captions)


def machine(stage: GradientStage) -> str:
    """Return the card, or the kind of CPU, that computed the gradients."""
    if stage.denoiser.device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU ({platform.machine()})"


def put_examples(writer: CollectionWriter, dataset: Dataset) -> None:
    """Store the pictures with their metadata and classes."""
    writer.put_classes(dataset.class_names)
    facts = dataset.metadata.drop(columns="id").to_dict("records")
    writer.put_examples(dataset.ids, dataset.labels, dataset.encoded, facts)


def put_model(writer, root, weights, curvature, kfac, stage, statistics) -> None:
    """Store the model and its curvature; the eigenvectors go to a file beside.

    DuckDB reads large arrays at a tenth of a mapped file's speed, and a file that
    travels in git should stay small.
    """
    writer.put_bytes("denoiser", weights)
    writer.put_array("eigenvalues", curvature.eigenvalues)
    writer.put_array("kfac_eigenvalues", kfac.eigenvalues)
    damped = curvature.eigenvalues + stage.damping
    whitened_noise = (statistics["noise"] / damped).sqrt()
    writer.put_array("whitened_noise", whitened_noise.to(torch.float16))
    tensors = {}
    for i, (q_a, q_g) in enumerate(
        zip(
            curvature.basis.input_eigenvectors,
            curvature.basis.gradient_eigenvectors,
            strict=True,
        )
    ):
        tensors[f"input.{i}"] = q_a.to(torch.float16).contiguous()
        tensors[f"gradient.{i}"] = q_g.to(torch.float16).contiguous()
    fingerprint = stage.config.fingerprint("data", "model", "train", "curvature")
    name = f"{stage.config.name}-eigenvectors-{fingerprint}.safetensors"
    write_atomically(root / name, safetensors.torch.save(tensors))
    put_file(writer, root, name, {"kind": "eigenvectors"}, "<f2", 0, 0)


def put_index(
    writer: CollectionWriter, root: Path, rows: Rows, index: GradientIndex
) -> None:
    """Store the sketch, and catalogue the shards of the full index."""
    writer.put_array("sketch_bits", np.array(rows.arrays["bits"]))
    writer.put_array("sketch_scale", np.array(rows.arrays["scale"]))
    writer.put_array("whitened_norm", np.array(rows.arrays["norm"]))
    writer.put_array("noise_level", np.array(rows.arrays["level"]))
    folder = index.folder.name
    put_file(writer, root, f"{folder}/rms.bin", {"kind": "rms"}, "<f4", 0, 0)
    for name in index.shard_names():
        kind, first = name.removesuffix(".bin").split("-")
        count = min(index.shard_examples, index.num_examples - int(first))
        dtype = "|u1" if kind == "codes" else "<f4"
        layout = {"kind": kind, "block": index.block, "bits": index.bits}
        put_file(writer, root, f"{folder}/{name}", layout, dtype, int(first), count)


def put_file(writer, root, name, layout, dtype, first, count) -> None:
    """Add a finished file beside the collection to its catalogue."""
    path = root / name
    writer.put_shard(
        Shard(
            file=name,
            first_position=first,
            num_examples=count,
            layout=layout,
            dtype=dtype,
            num_bytes=path.stat().st_size,
            sha256=file_sha256(path),
        )
    )


def put_gallery(writer, config, samples, losses, answers, similar) -> None:
    """Store the gallery's samples with their exact influences and CLIP similarities."""
    scores, errors = answers
    conditional = config.model.label_dropout > 0
    for i, label in enumerate(samples["labels"].tolist()):
        sample = Sample(
            i,
            label if conditional else None,
            i,
            config.samples.sampler,
            config.samples.num_steps,
            config.samples.guidance_scale,
            {},
        )
        image = to_png(samples["pixels"][i].numpy())
        writer.put_sample(sample, image, samples["x_0"][i])
        writer.put_answer(
            i,
            stored_key("ekfac", "loss"),
            StoredAnswer(scores[i], errors[i], float(losses[i]), "exact"),
        )
        nothing = np.full(similar.shape[1], np.nan)
        writer.put_answer(
            i,
            stored_key("clip", "loss"),
            StoredAnswer(similar[i], nothing, float("nan"), "exact"),
        )
