"""What `core.methods` names: the step of each method that is its own.

Features of the query and of the training images, or their inner products, to scores.
The formulas are in `core.scores.baselines`.
"""

import numpy as np
from torch import Tensor

from core.scores.baselines import (
    cosine_scores,
    das_scores,
    fisher_products,
    relative,
    trak_damping,
)
from core.scores.method_files import MethodFile
from core.scores.stored import FromFeatures


def trak(query: Tensor, file: MethodFile, damping: float | None) -> Tensor:
    """Return TRAK scores (Q, N): influence under the projected empirical Fisher.

    Park et al. 2023, "TRAK: Attributing Model Behavior at Scale", for diffusion models
    as Georgiev et al. 2023 and App. J.4 use it: the features are random projections of
    training-loss gradients, the Hessian their second moment, and the weights that
    multiply a classifier's scores are one for a loss. One checkpoint, no ensemble.

    D-TRAK (Zheng et al. 2024, "Intriguing Properties of Data Attribution on Diffusion
    Models") is the same formula with gradients of the squared norm of the predicted
    noise in place of both the training loss and the measurement, which their own
    experiments chose and no derivation gives.

    A score says by how much the measured cost would rise, times N, without the example,
    as far as a random projection and a low-rank Fisher can tell; trust the order more
    than the size.
    """
    damping = damping or trak_damping(file.features)
    return fisher_products(query, file.features, damping)


def das(query: Tensor, file: MethodFile, damping: float | None) -> Tensor:
    """Return diffusion attribution scores (Q, N), see `das_scores`."""
    damping = damping or trak_damping(file.features)
    return das_scores(query, file.features, file.tensors["residual"], damping)


def datainf(query: Tensor, file: MethodFile, damping: float | None) -> Tensor:
    """Return DataInf scores (Q, N); the damping is the method's own.

    Kwon et al. 2024, "DataInf: Efficiently Estimating Data Influence in LoRA-tuned LLMs
    and Diffusion Models", on all attributed layers in place of LoRA's: influence with a
    closed form for the damped inverse of every layer's empirical Fisher
    (`datainf_mixing`) and its paper's damping (`datainf_damping`). Query gradients are
    over the root of their layer's damping, the training gradients preconditioned by
    DataInf and times that root, both projected alike.

    A score says by how much the measured cost would rise, times N, without the example,
    taking every layer by itself. The paper's own code gives the opposite sign.
    """
    return query @ file.features.T


def relatif(products: np.ndarray, folds: Tensor, scoring) -> np.ndarray:
    """Return l-RelatIF scores (N,): influence per unit of self-influence.

    Barshan et al. 2020, "RelatIF: Identifying Explanatory Training Examples via
    Relative Influence", its l-RelatIF: the influence divided by sqrt(g_j^T H^-1 g_j),
    the root of the example's influence on itself, at the collection's own damping.
    (Their theta-RelatIF divides by |H^-1 g_j|.)

    A score says how much the example matters to this query in particular: examples that
    matter to everything are marked down.
    """
    return relative(products, scoring.whitened_norms)


def cosine(products: np.ndarray, folds: Tensor, scoring) -> np.ndarray:
    """Return cosines (N,) between the query's gradient and the training gradients."""
    length = np.array([float(folds.mean(0).norm())])
    norms = FromFeatures(scoring.method_file("cosine")).norms
    return cosine_scores(products[None], length, norms)[0]
