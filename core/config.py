"""Settings, one frozen dataclass per stage, and the presets of the shipped collections.

Defaults are the paper's where the paper gives one; a trailing comment names the unit or
the section. `to_dict` is what a collection records beside its results.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path

from core.drawing import Drawing

DATA_DIR = Path(__file__).resolve().parent.parent / "data"

# What a setting may be, where it is one of a few.
GGNS = ("model", "loss")
KFAC_APPROXIMATIONS = ("expand", "reduce")
PROJECTIONS = ("sketch", "signs")
MAX_DIM = 32_768  # features of a projection: App. J.4
SAMPLERS = ("ddim", "ddpm")

# Marks settings that came after collections were built: at their default they do not
# count in a fingerprint, so that those collections keep theirs.
LATER = {"later": True}


@dataclass(frozen=True)
class DataConfig:
    """Which images a model is trained on."""

    path: str = "glyphs64.parquet"  # relative to data/, or absolute
    image_size: int = 64  # pixels, square
    channels: int = 3
    label_columns: tuple[str, ...] = ("style", "group")  # class = their combination
    keep: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (column, allowed values)
    limit: int | None = None  # first examples after filtering; None keeps all
    # Whether to keep only values of the last label column that occur with every
    # combination of the others: concepts that all houses drew. A limit keeps whole
    # ones, as many as fit.
    complete: bool = field(default=False, metadata=LATER)
    # Share of the classes that training never sees. Of two label columns, every value
    # of the last one loses at most one of the first.
    held_out: float = field(default=0.0, metadata=LATER)


@dataclass(frozen=True)
class ModelConfig:
    """The denoiser: a diffusers UNet2DModel, in pixels or in latents."""

    autoencoder: str = (
        "none"  # "none", "patch"; loaded models may also hold "kl" or "vq"
    )
    patch_size: int = 4  # pixels, for "patch"
    latent_channels: int = 16  # principal components kept, for "patch"
    block_out_channels: tuple[int, ...] = (32, 64, 96)
    attention: tuple[bool, ...] = (False, True, True)  # per level
    layers_per_block: int = 1
    attention_head_dim: int | None = 16  # None: one head
    norm_num_groups: int = 8
    prediction_type: str = "epsilon"  # "epsilon", "v_prediction", "sample"
    num_train_timesteps: int = 1000  # T
    beta_schedule: str = "linear"  # App. J.3
    beta_start: float = 1e-4
    beta_end: float = 0.02
    clip_sample: bool = True  # pixels only; latents are unbounded
    label_dropout: float = 0.0  # share of training steps without a label
    # Share of training steps without the value of each label column alone. With it each
    # column has an embedding of its own; without it every class has one.
    part_dropout: tuple[float, ...] = field(default=(), metadata=LATER)
    lapped: bool = field(default=False, metadata=LATER)  # patches overlap, for "patch"
    # Steps in which a small network learns to take the grain out of decoded patches
    # (`core.model.finisher`); 0 leaves it out.
    finisher_steps: int = field(default=0, metadata=LATER)
    dropout: float = field(default=0.0, metadata=LATER)  # in training
    # How the timestep enters: "default", added, or "scale_shift".
    time_scale_shift: str = field(default="default", metadata=LATER)
    norm_eps: float = field(default=1e-5, metadata=LATER)
    flip_sin_to_cos: bool = field(default=True, metadata=LATER)
    freq_shift: int = field(default=0, metadata=LATER)
    downsample_padding: int = field(default=1, metadata=LATER)

    @property
    def drops(self) -> tuple[float, ...]:
        """Shares of steps without the whole label, and without each part alone."""
        return (self.label_dropout, *self.part_dropout)


@dataclass(frozen=True)
class TrainConfig:
    """How the denoiser is trained (App. J.8)."""

    num_steps: int = 32_000
    batch_size: int = 128
    learning_rate: float = 1e-4
    weight_decay: float = 1e-6
    warmup_steps: int = 3_200
    max_grad_norm: float = 1.0
    ema_decay: float = 0.999
    horizontal_flip: bool = False
    start_from: str = ""  # weights in data/models to go on training; "" starts anew
    checkpoint_every: int = 500  # steps
    # File beside a user's own data sets that holds the finished model, which was
    # trained elsewhere; "" trains one.
    imported: str = field(default="", metadata=LATER)
    # Whether every image brings its own timesteps, noise, mirrors, dropped labels and
    # places in the order, by its id and visit: leaving one out then moves no other.
    common_draws: bool = field(default=False, metadata=LATER)
    # Added to the second moment inside Adam's root, so that the trained weights are a
    # smooth function of every image's weight; 0 adds 1e-8 to the root, as torch does.
    root_epsilon: float = field(default=0.0, metadata=LATER)


@dataclass(frozen=True)
class CurvatureConfig:
    """How the Hessian is approximated by K-FAC and EK-FAC (Sec. 3.1, App. C)."""

    ggn: str = "model"  # "model" (Eq. 9) or "loss", the empirical Fisher (Eq. 11)
    kfac_approx: str = "expand"  # or "reduce"
    factor_draws: int = 250  # draws per example for the Kronecker factors, App. J.4
    eigenvalue_draws: int = 125  # draws per example for the corrected eigenvalues
    batch_size: int = 64  # (example, draw) pairs at a time
    max_positions: int | None = 32  # per sample and layer, for the factors
    # Pairs whose gradients are summed before squaring, for the eigenvalues: cheaper and
    # noisier the larger it is.
    group_size: int = 64


@dataclass(frozen=True)
class GradientConfig:
    """How training gradients are estimated and stored."""

    num_draws: int = 250  # S, App. J.4
    num_folds: int = 2  # independent parts of the draws, for standard errors
    # Damping as a multiple of the mean corrected eigenvalue. The paper's 1e-8 (App.
    # J.5) and this value rank alike, but scores at this one are less noisy and compress
    # better.
    relative_damping: float = 1e-3
    sketch_dim: int = 98_304  # signs kept per example inside the DuckDB file
    slice_examples: int = 128  # examples that set the balance and the noise level
    chunk: int = 16  # examples whose results are written together
    index_bits: int = 8  # per coordinate of the full index: 8, 4 or 1


@dataclass(frozen=True)
class SampleConfig:
    """The gallery that a collection shows first."""

    num_samples: int = 48
    # Images drawn to choose these from, those nearest to the training images of
    # every subject in turn; 0 keeps the first ones drawn.
    num_candidates: int = 0
    sampler: str = "ddim"
    num_steps: int = 50
    guidance_scale: float = 1.0
    num_draws: int = 256  # of each sample's query gradient

    def drawing(self, label: int | None, seed: int) -> Drawing:
        """Return how the image of a class and a seed is drawn."""
        return Drawing(label, seed, self.sampler, self.num_steps, self.guidance_scale)


@dataclass(frozen=True)
class MethodConfig:
    """What is precomputed for the methods that influence is compared with."""

    dim: int = 768  # features per example; the paper's TRAK has 32,768 (App. J.4)
    projection: str = "sketch"  # or "signs", dense: for GPUs
    num_draws: int = 16  # per example, where the full index does not serve


@dataclass(frozen=True)
class RetrainConfig:
    """How often the model is trained again, on random subsets (Eq. 13, App. J.6)."""

    num_subsets: int = 32  # M; the paper has 100
    num_seeds: int = 1  # K; the paper has 5
    share: float = 0.5  # of the examples, in each subset


@dataclass(frozen=True)
class RemovalConfig:
    """Which images are left out to see what becomes of a sample (App. J.7)."""

    methods: tuple[str, ...] = ("ekfac", "trak", "clip")
    fractions: tuple[float, ...] = (0.1, 0.02)  # of the images, most influential
    num_samples: int = 5  # the first of the gallery
    num_random: int = 3  # random removals of each size, the same for all samples
    num_group_controls: int = 2  # random removals as large as a whole group
    num_seeds: int = 1


@dataclass(frozen=True)
class DisjointConfig:
    """Pairs of models that share no image, on ever larger parts (Observation 3)."""

    shares: tuple[float, ...] = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of the images
    # Of the full training's steps, for all sizes: a small part is seen more often, so
    # that what differs is what the images say and not how long they were looked at.
    steps: float = 0.5


@dataclass(frozen=True)
class CollectionConfig:
    """Everything that makes a collection; equal settings give an equal collection."""

    name: str
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    curvature: CurvatureConfig = field(default_factory=CurvatureConfig)
    gradients: GradientConfig = field(default_factory=GradientConfig)
    samples: SampleConfig = field(default_factory=SampleConfig)
    title: str = ""  # as on pages
    captions: tuple[str, ...] = ("name",)  # metadata shown under an image
    seed: int = 0

    def to_dict(self) -> dict:
        """Return the settings as nested dictionaries of plain values."""
        return asdict(self)

    def fingerprint(self, *stages: str) -> str:
        """Return 12 hex digits that identify the settings of the named stages.

        Without names, all settings count. Stages are field names such as "data" or
        "model"; the seed always counts.
        """
        settings = self.to_dict()
        for stage in fields(self):
            for late in fields(stage.type) if is_dataclass(stage.type) else ():
                if late.metadata and settings[stage.name][late.name] == late.default:
                    del settings[stage.name][late.name]
        if stages:
            settings = {name: settings[name] for name in (*stages, "seed")}
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def answers_fingerprint(self) -> str:
        """Return the fingerprint of all that decides the gallery's answers."""
        return self.fingerprint(
            "data", "model", "train", "curvature", "gradients", "samples"
        )

    def shipped_weights_path(self) -> Path:
        """Return where the denoiser made with these settings lies if it ships."""
        fingerprint = self.fingerprint("data", "model", "train")
        return DATA_DIR / "models" / f"{self.name}-{fingerprint}.safetensors"


def config_from_dict(settings: dict) -> CollectionConfig:
    """Return the settings that `to_dict` wrote, also after a way through JSON.

    Raises:
        ValueError: If this program does not know one of them.
    """
    try:
        return CollectionConfig(**{
            field.name: field.type(**_tuples(settings[field.name]))
            if is_dataclass(field.type)
            else _tuples(settings[field.name])
            for field in fields(CollectionConfig)
            if field.name in settings
        })
    except TypeError as error:
        raise ValueError(
            f"The settings were written by another version of this program ({error}). "
            "Build the collection again."
        ) from None


def _tuples(value):
    """Return a JSON value with tuples for lists."""
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return value


def sets_folder() -> Path:
    """Return where the data sets and the settings of users' own collections lie."""
    return Path(os.environ.get("AFTERIMAGE_SETS", DATA_DIR / "sets"))
