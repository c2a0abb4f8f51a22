"""Put all that the stages made into one published collection, and assess it."""

import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.collection.publish import CollectionWriter
from core.collection.schema import Sample, Shard, StoredAnswer, file_sha256
from core.config import CollectionConfig
from core.curvature.basis import eigenvectors, factor_eigenvalues
from core.data.datasets import Dataset, load_credits, load_origin
from core.engine.clip import GLYPHS_CLIP_PATH, clip_similarity, load_clip
from core.explorer.resemblance import compared_with, of_images
from core.files.images import png
from core.files.tensor_files import write_tensors
from core.index.full import GradientIndex, balance
from core.index.sketch import collection_sketch
from core.lenses import Lens, stored_key
from core.scores.error_files import errors_path, write_model
from core.scores.group_errors import (
    training_errors,
    training_errors_path,
    write_training_errors,
)
from core.scores.influence import (
    centred,
    draws_factor,
    spearman_brown,
    split_reliability,
    top_overlap,
)
from precompute.machinery.rows import Rows
from precompute.machinery.workspace import Workspace, write_atomically
from precompute.stages.clip import embed_examples
from precompute.stages.errors import (
    by_fold,
    error_agreement,
    fit_errors,
    gallery_answers,
    gallery_sketch,
)
from precompute.stages.gradients import GradientStage
from precompute.stages.stages import Computed

LARGEST_INSIDE = 100_000_000  # bytes of a model inside the collection's file
PACKAGES = ("torch", "diffusers", "curvlinops-for-pytorch", "open_clip_torch", "duckdb")


def publish(config: CollectionConfig, root: Path, made: Computed) -> Path:
    """Embed the images, assess the scores, and write the collection file."""
    dataset, stage = made.model.dataset, made.stage
    rows, queries, statistics = made.rows, made.queries, made.statistics
    clip_model = load_clip(device=str(stage.denoiser.device))
    embeddings = embed_examples(clip_model, dataset)
    sample_embeddings = clip_model.embed_images(made.samples["pixels"].numpy())

    sketch = collection_sketch(
        config.seed, queries.shape[-1], config.gradients.sketch_dim
    )
    model, asked, calibration = fit_errors(stage, queries, rows, statistics, sketch)
    answers = gallery_answers(rows, asked, model)
    spread = np.array([one.spread for one in asked])
    together = training_errors(by_fold(rows, "panel_train"), spread)
    write_training_errors(training_errors_path(root, config), together)
    write_model(errors_path(root, config), model)
    from_sketch, _ = gallery_sketch(stage, queries, rows, sketch)
    quality = assess(stage, queries, rows, made.index, statistics, from_sketch)
    quality["error_agreement"] = error_agreement(rows, answers[1])
    quality = {name: number_or_none(value) for name, value in quality.items()}
    with CollectionWriter(root, config.name) as writer:
        costs = stage_seconds(made.model.workspace, rows)
        put_facts(writer, config, stage, costs, quality, calibration)
        dim, checksum = config.gradients.sketch_dim, sketch.checksum()
        writer.put_meta("sketch", {"dim": dim, "checksum": checksum})
        digest = file_sha256(GLYPHS_CLIP_PATH)
        writer.put_meta("clip", {"name": clip_model.name, "sha256": digest})
        put_examples(writer, dataset)
        put_model(writer, root, made)
        put_index(writer, root, rows, made.index)
        writer.put_array("clip", embeddings)
        similar = clip_similarity(sample_embeddings, embeddings).astype(np.float64)
        conditional = stage.denoiser.null_label is not None
        answers = (*answers, similar)
        drawn = list(map(png, made.samples["pixels"].numpy()))
        gallery = made.samples, drawn, made.losses
        put_gallery(writer, config, gallery, answers, conditional)
        training = [dataset.encoded[i] for i in compared_with(len(dataset))]
        unlike = of_images(drawn, training, config.data, similar, embeddings)
        writer.put_meta("resemblance", asdict(unlike))
        for key, value in made.fidelity.items():
            writer.put_evaluation("fidelity", key, value)
        return writer.publish()


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


def number_or_none(value: float) -> float | None:
    """Return the value, or None for a correlation of constants: JSON has no NaN."""
    return value if np.isfinite(value) else None


def assess(
    stage: GradientStage,
    queries: Tensor,
    rows: Rows,
    index: GradientIndex,
    statistics: dict[str, Tensor],
    from_sketch: np.ndarray,
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
    return {
        "split_reliability": split,
        "reliability": spearman_brown(split, 2),
        "draws_for_90": stage.config.gradients.num_draws / 2 * draws_factor(split, 0.9),
        "index_agreement": split_reliability(from_index, exact),
        "index_top_ten": top_overlap(from_index, exact, 10),
        "sketch_agreement": split_reliability(from_sketch, exact),
        "sketch_top_ten": top_overlap(from_sketch, exact, 10),
    }


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
    if origin := load_origin(config.data):  # the shipped collections keep their hash
        writer.put_meta("origin", origin)
    writer.put_meta("captions", config.captions)


def machine(stage: GradientStage) -> str:
    """Return the card, or the kind of CPU, that computed the gradients."""
    if stage.denoiser.device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU ({platform.machine()})"


def put_examples(writer: CollectionWriter, dataset: Dataset) -> None:
    """Store the images with their metadata and classes."""
    writer.put_classes(dataset.class_names)
    facts = dataset.metadata.drop(columns="id").to_dict("records")
    writer.put_examples(dataset.ids, dataset.labels, dataset.encoded, facts)


def put_model(writer: CollectionWriter, root: Path, made: Computed) -> None:
    """Store the model and its curvature; the eigenvectors go to a file beside.

    DuckDB reads large arrays at a tenth of a mapped file's speed, and a file that
    travels in git should stay small: a large model lies beside it too.
    """
    stage, weights, ekfac = made.stage, made.model.weights, made.ekfac
    fingerprint = stage.config.fingerprint("data", "model", "train")
    if len(weights) <= LARGEST_INSIDE:
        writer.put_bytes("denoiser", weights)
    else:
        name = f"{stage.config.name}-model-{fingerprint}.safetensors"
        write_atomically(root / name, weights)
        put_file(writer, root, name, {"kind": "denoiser"}, "|u1", 0, 0)
    writer.put_array("eigenvalues", ekfac.eigenvalues)
    layout, kfac = made.kfac.basis.layout, made.kfac.eigenvalues
    columns, rows = factor_eigenvalues(layout, kfac)
    writer.put_array("kfac_gradient_eigenvalues", columns)
    writer.put_array("kfac_input_eigenvalues", rows)
    damped = ekfac.eigenvalues + stage.damping
    whitened_noise = (made.statistics["noise"] / damped).sqrt()
    writer.put_array("whitened_noise", whitened_noise.to(torch.float16))
    fingerprint = stage.config.fingerprint("data", "model", "train", "curvature")
    name = f"{stage.config.name}-eigenvectors-{fingerprint}.safetensors"
    write_tensors(root / name, eigenvectors(ekfac.basis), {})
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


def put_gallery(writer, config, gallery, answers, conditional) -> None:
    """Store the gallery's samples with their exact influences and CLIP similarities."""
    samples, drawn, losses = gallery
    scores, errors, similar = answers
    for i, label in enumerate(samples["labels"].tolist()):
        seed = int(samples["seeds"][i])
        drawing = config.samples.drawing(label if conditional else None, seed)
        sample = Sample(i, drawing, {})
        writer.put_sample(sample, drawn[i], samples["x_0"][i])
        writer.put_answer(
            i,
            stored_key(Lens("ekfac")),
            StoredAnswer(scores[i], errors[i], float(losses[i]), "exact"),
        )
        nothing = np.full(similar.shape[1], np.nan)
        writer.put_answer(
            i,
            stored_key(Lens("clip")),
            StoredAnswer(similar[i], nothing, float("nan"), "exact"),
        )
