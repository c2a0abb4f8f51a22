"""How training images can be scored: one entry holds all facts of a method.

Light: an entry names its functions as "module:function", which load when first asked.
How to add one: core/README.md.
"""

from dataclasses import dataclass

from core.measurements import Measurement


@dataclass(frozen=True)
class Features:
    """How a method's file of features is made: projected training gradients.

    Attributes:
        outputs: What is differentiated, `outputs(prediction)`, shape (S,), of a
            `core.measure.outputs.Prediction`; None: gradients of the full index alone.
        indexed: Whether they are read from the full index where it is there.
        layerwise: Whether gradients are preconditioned layer by layer before they are
            projected, which takes all of them at once.
        residual: One more number to keep of every image, `residual(prediction)`.
    """

    outputs: str | None = None
    indexed: bool = False
    layerwise: bool = False
    residual: str | None = None


@dataclass(frozen=True)
class Method:
    """A way to score training images.

    Attributes:
        title: Its one name, everywhere.
        kind: "influence": a score is a predicted change of the measurement on removal,
            times N; "attribution": only the order and the sign count; "similarity":
            what is alike, not what caused the image.
        meaning: What a large number means, in plain words.
        paper: Where it comes from.
        reads: "gradients": inner products with training gradients, of the full index or
            the sketch. "features": projected gradients in its file. "steps": the same,
            with a query gradient for each sampling step. "images": no gradient.
        scores: The function that scores; its arguments depend on `reads`. "gradients":
            `scores(products, folds, scoring)`, what is made of products (N,) or of
            their errors (None: nothing), given the query's gradient (F, P). "features"
            and "steps": `scores(features, file, damping)`, shape (Q, N), of query
            features (Q, k), an open `core.scores.method_files.MethodFile` and a
            damping or None. "images": `scores(engine, query)`, shape (N,).
        preconditioner: Of the query gradient: "ekfac", "kfac" or None.
        file: What it reads beside the collection, by the name of its kind.
        file_required: Whether there are no scores without it.
        features: How its file is made, where it is a file of features.
        array: The collection's own array that it compares images by.
        measurement: The measurement that belongs to the method; None: any.
        damped: Whether a damping changes its scores.
        centred: Whether scores are taken about their mean (`core.scores.influence`);
            False where zero means something.
        additive: Whether the scores of disjoint ranges of timesteps add up.
        has_errors: Whether its scores have standard errors.
        note: What a reader should know of an answer at another damping, a sentence.
    """

    title: str
    kind: str
    meaning: str
    paper: str
    reads: str = "gradients"
    scores: str | None = None
    preconditioner: str | None = None
    file: str | None = None
    file_required: bool = True
    features: Features | None = None
    array: str | None = None
    measurement: Measurement | None = None
    damped: bool = True
    centred: bool = True
    additive: bool = True
    has_errors: bool = True
    note: str = ""


_PAPER = "Mlodozeniec et al. 2025"
_CHANGE = "How much worse the model would do on this image without the training image"


def _own(costs: str, over: str = "draws") -> Measurement:
    """Return what a method measures in place of any choice; no page names it."""
    return Measurement("", "", "", "", f"core.measure.{costs}", over)


def _influence(title: str, how: str, paper: str, kind: str, file: str | None = None):
    """Return the facts of an influence with some curvature."""
    meaning, paper = f"{_CHANGE}; {how}.", f"{_PAPER}{paper}"
    return Method(title, "influence", meaning, paper, preconditioner=kind, file=file)


def _likeness(title: str, how: str, paper: str, scores: str, array: str | None = None):
    """Return the facts of a similarity of images."""
    return Method(
        title,
        "similarity",
        f"How alike the two images {how}; 1 is the same.",
        paper,
        reads="images",
        scores=f"core.engine.similarity:{scores}",
        array=array,
        damped=False,
        additive=False,
        has_errors=False,
    )


_REDUCED, _FISHER = "; Eschenhagen et al. 2023", ", Eq. 11"

METHODS = {
    "ekfac": _influence(
        "EK-FAC influence",
        "the method that the paper recommends",
        "; George et al. 2018",
        "ekfac",
    ),
    "kfac": _influence(
        "K-FAC influence",
        "with a coarser image of the loss surface than EK-FAC",
        "; Martens and Grosse 2015",
        "kfac",
    ),
    "ekfac-reduce": _influence(
        "EK-FAC influence, reduce",
        "positions of a layer are added up before they are compared",
        _REDUCED,
        "ekfac",
        "curvature-model-reduce",
    ),
    "kfac-reduce": _influence(
        "K-FAC influence, reduce",
        "coarser than EK-FAC, positions of a layer added up",
        _REDUCED,
        "kfac",
        "curvature-model-reduce",
    ),
    "ekfac-fisher": _influence(
        "EK-FAC influence, empirical Fisher",
        "the loss surface is taken from the training gradients",
        _FISHER,
        "ekfac",
        "curvature-loss-expand",
    ),
    "kfac-fisher": _influence(
        "K-FAC influence, empirical Fisher",
        "coarser, the loss surface taken from the training gradients",
        _FISHER,
        "kfac",
        "curvature-loss-expand",
    ),
    "kfac-fisher-reduce": _influence(
        "K-FAC influence, empirical Fisher, reduce",
        "coarser, from the training gradients, positions added up",
        ", App. C",
        "kfac",
        "curvature-loss-reduce",
    ),
    "relatif": Method(
        "RelatIF",
        "attribution",
        "Influence per unit of influence on everything: favours images that matter "
        "for this one in particular over images that matter for all.",
        "Barshan et al. 2020",
        scores="core.scores.by_method:relatif",
        preconditioner="ekfac",
        note="Self-influence is taken at the collection's own damping.",
    ),
    "gradient": Method(
        "Gradient product",
        "attribution",
        "How far a training step on the image would also improve this one; curvature "
        "is left out.",
        "Charpiat et al. 2019",
        file="trak",
        file_required=False,
        damped=False,
    ),
    "cosine": Method(
        "Gradient cosine",
        "attribution",
        "How alike the directions are in which the two images push the model; 1 is "
        "the same direction.",
        "Charpiat et al. 2019",
        scores="core.scores.by_method:cosine",
        file="trak",
        damped=False,
        centred=False,
        additive=False,
    ),
    "trak": Method(
        "TRAK",
        "attribution",
        "Influence computed from randomly shortened gradients; the order counts, not "
        "the size.",
        "Park et al. 2023",
        reads="features",
        scores="core.scores.by_method:trak",
        file="trak",
        features=Features("core.measure.outputs:Prediction.losses", indexed=True),
        has_errors=False,
    ),
    "d-trak": Method(
        "D-TRAK",
        "attribution",
        "TRAK with the size of the model's output in place of its loss; the order "
        "counts, not the size.",
        "Zheng et al. 2024",
        reads="features",
        scores="core.scores.by_method:trak",
        file="d-trak",
        features=Features("core.measure.outputs:Prediction.square_norms"),
        measurement=_own("outputs:square_norm"),
        has_errors=False,
    ),
    "journey-trak": Method(
        "Journey-TRAK",
        "attribution",
        "TRAK added up over the steps in which the image was drawn; the order "
        "counts, not the size.",
        "Georgiev et al. 2023",
        reads="steps",
        scores="core.scores.by_method:trak",
        file="trak",
        measurement=_own("costs:loss", over="steps"),
        has_errors=False,
    ),
    "datainf": Method(
        "DataInf",
        "influence",
        f"{_CHANGE}; with a quick closed form for the loss surface.",
        "Kwon et al. 2024",
        reads="features",
        scores="core.scores.by_method:datainf",
        file="datainf",
        features=Features(indexed=True, layerwise=True),
        damped=False,
        has_errors=False,
    ),
    "das": Method(
        "Diffusion attribution score",
        "attribution",
        "How far the model's output for this image would move without the training "
        "image; the order counts, not the size.",
        "Lin et al. 2024",
        reads="features",
        scores="core.scores.by_method:das",
        file="das",
        features=Features(
            "core.measure.outputs:Prediction.sizes",
            residual="core.measure.outputs:Prediction.residual",
        ),
        measurement=_own("outputs:output_size"),
        centred=False,
        additive=False,
        has_errors=False,
    ),
    "clip": _likeness(
        "Small CLIP",  # `core.engine.clip`: no other ships, and none is loaded
        "look to a small CLIP that was trained on emoji",
        "Radford et al. 2021",
        "by_clip",
        "clip",
    ),
    "pixel": _likeness(
        "Pixels", "are, pixel by pixel", "nearest neighbours", "by_pixels"
    ),
    "latent": _likeness(
        "Latents",
        "are to the model's own code of them",
        "nearest neighbours",
        "by_latents",
    ),
    "patches": Method(
        "Patches",
        "similarity",
        "The share of this image's patches that the best copy of patches would take "
        "from the training image; all shares add up to 1.",
        "Zhao et al. 2026",
        reads="images",
        scores="core.engine.similarity:by_patches",
        damped=False,
        additive=False,
        has_errors=False,
    ),
}

KINDS = {  # what the numbers of each kind of method are
    "influence": "predicted change if removed",
    "attribution": "attribution: the order counts, not the size",
    "similarity": "similar, not cause",
}


def measures(method: str) -> bool:
    """Return whether a measurement can be chosen for a method."""
    return has_timesteps(method) and METHODS[method].measurement is None


def has_timesteps(method: str) -> bool:
    """Return whether a range of noise levels can be chosen for a method."""
    return METHODS[method].reads != "images"


def with_features() -> dict[str, Features]:
    """Return how the file of every method that has one of features is made."""
    return {name: facts.features for name, facts in METHODS.items() if facts.features}


def parts() -> tuple[str, ...]:
    """Return what `precompute methods` makes: curvatures, and each file of features."""
    return ("curvature", *with_features())
