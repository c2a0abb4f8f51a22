"""What other methods need beyond a collection, into files beside it; resumable.

Eigenbases of the other curvatures, and features of gradients.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from core.config import CollectionConfig, MethodConfig
from core.curvature.basis import eigenvectors
from core.methods import METHODS, parts, with_features
from precompute.machinery.workspace import Workspace
from precompute.stages.curvature import fit_curvature
from precompute.stages.features import make_features
from precompute.stages.method_stage import MethodStage, open_stage


def compute_methods(
    root: Path,
    name: str,
    work: Path | None,
    device: str,
    only: Iterable[str] | None = None,
    settings: MethodConfig | None = None,
) -> list[Path]:
    """Return the paths of all files that were asked for, making those not there yet.

    Under torchrun the processes share the curvatures and the gradients.

    Args:
        root: Folder of the published collections.
        name: Of the collection.
        work: Folder of unfinished work; None for `data/work`.
        device: Where to compute.
        only: Which of `parts()`; None for all.
        settings: Of the features; None for the defaults.

    Raises:
        ValueError: If there is no such part; the message lists them.
    """
    only = parts() if only is None else tuple(only)
    if unknown := sorted(set(only) - set(parts())):
        raise ValueError(
            f"Nothing is precomputed for '{unknown[0]}'. Choose from "
            f"{', '.join(parts())}; the other methods need no file."
        )
    stage = open_stage(root, name, work, device, settings or MethodConfig())
    paths = compute_curvatures(stage) if "curvature" in only else []
    kinds = [kind for kind in with_features() if kind in only]
    for indexed in (False, True):
        some = [kind for kind in kinds if from_index(stage, kind) == indexed]
        paths += make_features(stage, some, indexed)
    return paths


def from_index(stage: MethodStage, kind: str) -> bool:
    """Return whether features are read from the index, or were."""
    features = METHODS[kind].features
    if features.outputs is None:
        return True
    made = stage.path(kind, stage.feature_settings(kind, True))
    return features.indexed and (stage.index is not None or made.exists())


def other_curvatures(config: CollectionConfig) -> list[CollectionConfig]:
    """Return the settings with every other GGN and treatment of shared weights."""
    own = config.curvature
    choices = [(ggn, how) for ggn in ("model", "loss") for how in ("expand", "reduce")]
    return [
        replace(config, curvature=replace(own, ggn=ggn, kfac_approx=how))
        for ggn, how in choices
        if (ggn, how) != (own.ggn, own.kfac_approx)
    ]


def compute_curvatures(stage: MethodStage) -> list[Path]:
    """Fit the eigenbasis and both kinds of eigenvalues of every other curvature."""
    paths = []
    for config in other_curvatures(stage.config):
        own = config.curvature
        kind = f"curvature-{own.ggn}-{own.kfac_approx}"
        settings = stage.content(asdict(own))
        paths.append(stage.path(kind, settings))
        if paths[-1].exists():
            continue
        workspace = Workspace(config, stage.workspace.folder)
        ekfac, kfac = fit_curvature(config, stage.dataset, stage.denoiser, workspace)
        tensors = {"ekfac": ekfac.eigenvalues, "kfac": kfac.eigenvalues}
        tensors |= eigenvectors(ekfac.basis)
        seconds = workspace.load("curvature", "curvature")[1]["seconds"]
        stage.write(kind, settings, tensors, seconds, draws=own.factor_draws)
    return paths
