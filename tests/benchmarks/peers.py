"""What the peer libraries need for the same EK-FAC, without their decompositions."""

import time
from collections.abc import Callable
from copy import deepcopy

import curvlinops.ekfac
import torch
from curvlinops import EKFACLinearOperator
from torch import nn

from core.curvature.fit import Samples
from core.model.denoiser import Denoiser
from core.model.parameters import Layout, attributed_parameters

try:
    from kronfluence import FactorArguments, Task, prepare_model
    from kronfluence.factor.covariance import fit_covariance_matrices_with_loader
    from kronfluence.factor.eigen import (
        fit_lambda_matrices_with_loader,
        perform_eigendecomposition,
    )
    from kronfluence.utils.state import State
except ImportError:  # it is not in requirements.txt
    Task = None

KRONFLUENCE_MISSING = (
    "kronfluence is not compared: it is not installed; "
    "`pip install kronfluence==1.0.1` installs it, for this benchmark alone."
)


def timed(function: Callable, *args, **kwargs) -> tuple[float, object]:
    """Return (seconds, result) of a call."""
    started = time.perf_counter()
    result = function(*args, **kwargs)
    return time.perf_counter() - started, result


class Packed(nn.Module):
    """A denoiser as curvlinops wants it: one input tensor, 2-D output."""

    def __init__(self, denoiser: Denoiser):
        super().__init__()
        self.denoiser = denoiser

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        """Return predictions (B, C H W) from x_t, timestep and label in one row."""
        x_t = packed[:, :-2].unflatten(1, self.denoiser.shape)
        timesteps, labels = packed[:, -2].long(), packed[:, -1].long()
        if self.denoiser.null_label is None:
            labels = None
        return self.denoiser.predict(x_t, timesteps, labels).flatten(1)


def curvlinops_operator(
    denoiser: Denoiser, layout: Layout, batches: list[Samples], fisher_type: str
) -> EKFACLinearOperator:
    """Return curvlinops' EK-FAC over the samples; it computes on first use."""
    data = []
    for samples in batches:
        labels = samples.labels
        labels = torch.zeros_like(samples.timesteps) if labels is None else labels
        columns = [samples.timesteps[:, None].float(), labels[:, None].float()]
        packed = torch.cat([samples.x_t.flatten(1), *columns], 1)
        targets = samples.targets if samples.targets is not None else samples.probes
        data.append((packed, targets.flatten(1)))
    return EKFACLinearOperator(
        Packed(denoiser),
        nn.MSELoss(reduction="sum"),
        attributed_parameters(denoiser.unet, layout),
        data,
        fisher_type=fisher_type,
        mc_samples=1,
        kfac_approx="expand",
        separate_weight_and_bias=False,
        check_deterministic=False,
    )


def curvlinops_seconds(
    denoiser: Denoiser, layout: Layout, batches: list[Samples]
) -> float:
    """Return the seconds of curvlinops' two passes."""
    operator = curvlinops_operator(denoiser, layout, batches, "mc")
    vector = [torch.zeros_like(p) for p in attributed_parameters(denoiser.unet, layout)]
    decomposing = 0.0
    eigh = curvlinops.ekfac.eigh

    def timed_eigh(matrix):
        nonlocal decomposing
        seconds, found = timed(eigh, matrix)
        decomposing += seconds
        return found

    curvlinops.ekfac.eigh = timed_eigh
    try:
        return timed(lambda: operator @ vector)[0] - decomposing
    finally:
        curvlinops.ekfac.eigh = eigh


def kronfluence_seconds(
    denoiser: Denoiser, batches: list[Samples]
) -> dict[str, float] | None:
    """Return the seconds of kronfluence's two passes; None if it is not installed."""
    if Task is None:
        return None

    class PseudoGradients(Task):
        """The same objective as this project's, on the same samples."""

        def compute_train_loss(self, batch, model, sample=False):
            samples = Samples(**batch)
            return samples.objective(
                model.predict(samples.x_t, samples.timesteps, samples.labels)
            )

        def compute_measurement(self, batch, model):
            raise NotImplementedError

    task = PseudoGradients()
    model = prepare_model(deepcopy(denoiser), task)
    state, loader = State(cpu=True), [vars(samples) for samples in batches]
    arguments = FactorArguments(
        strategy="ekfac", eigendecomposition_dtype=torch.float64
    )
    shared = {"model": model, "state": state, "factor_args": arguments}
    quiet = {"disable_tqdm": True}
    first, (_, covariances) = timed(
        fit_covariance_matrices_with_loader, task=task, loader=loader, **shared, **quiet
    )
    eigen = perform_eigendecomposition(covariances, **shared, **quiet)
    second, _ = timed(
        fit_lambda_matrices_with_loader,
        task=task,
        loader=loader,
        eigen_factors=eigen,
        **shared,
        **quiet,
    )
    return {"covariances": first, "eigenvalues": second}
