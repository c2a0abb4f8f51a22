"""Models that others saved: where their parts lie, and whether they can run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from core.model.model_folders import SavedModel
from core.model.pipelines import read_pipeline
from core.model.trial import try_out
from precompute.imports.models import describe_model, describe_saved
from tests.helpers.stable_diffusion import CAPTIONS
from tests.kinds import Case, Found
from tests.kinds.weights import PLAIN, UNTOLD, copied, filled, rewritten, saved

SCHEDULER = "scheduler/scheduler_config.json"


def asking(**parts) -> Callable[[Path], Found]:
    """Return what says which parts of a saved model are taken, and tries them."""

    def ask(folder: Path) -> Found:
        wanted = {name: part(folder) if callable(part) else part
                  for name, part in parts.items()}  # fmt: skip
        model = SavedModel(folder, **wanted)
        denoiser = read_pipeline(model, CAPTIONS)
        try_out(denoiser)
        return Found("\n".join([*describe_model(denoiser), *describe_saved(model)]))

    return ask


def case(name: str, kind: str, make: Callable[[Path], Path | None], **expected) -> Case:
    """Return the case of a model; `make` changes a copy, and may return a part."""
    options = expected.pop("options", {})

    def made(folder: Path) -> Path:
        path = copied(kind, folder)
        return make(path) or path

    ask = asking(**options)
    expected = {"never": UNTOLD} | expected
    return Case("saved models", name, made, ask=ask, **expected)


def set_in(file: str, **changes) -> Callable[[Path], None]:
    """Return what changes settings in a file."""

    def change(folder: Path) -> None:
        path = folder / file
        settings = json.loads(path.read_text()) | changes
        path.write_text(json.dumps(settings))

    return change


def averaged(folder: Path) -> None:
    """Put the running average of the weights beside them, as training does."""
    shutil.copytree(folder / "unet", folder / "unet_ema")
    set_in("unet_ema/config.json", decay=0.9999, optimization_step=5)(folder)
    rewritten(folder / "unet_ema" / PLAIN, filled("conv_in.bias", 5.0))


def checkpoint(folder: Path, whole: bool) -> Path:
    """Return a checkpoint of diffusers' training script, in its output or alone."""
    place = folder / "checkpoint-500"
    place.mkdir()
    (folder / "unet").rename(place / "unet")
    averaged(place)
    for name in ("optimizer.bin", "scheduler.bin", "random_states_0.pkl"):
        (place / name).write_bytes(b"states of training")
    if not whole:
        shutil.rmtree(folder / "scheduler")
    return place


def outputs(folder: Path) -> Path:
    """Return a folder of which training wrote no more than checkpoints."""
    checkpoint(folder, whole=False)
    for steps in (1000, 99):
        (folder / f"checkpoint-{steps}").mkdir()
    return folder


def huge(folder: Path, file: str, name: str) -> None:
    """Fill weights with numbers that are finite, and their products not."""
    rewritten(folder / file, lambda weights: weights | {
        name: weights[name] * 0 + 3e38
    })  # fmt: skip


def lonely(folder: Path) -> Path:
    """Return the folder of a UNet with nothing around it."""
    (folder / "unet").rename(folder / "mine")
    shutil.rmtree(folder / "scheduler")
    return folder / "mine"


def its_scheduler(kind: str, part: str = "") -> dict:
    """Return the option that names the noise schedule of another model."""
    return {"scheduler": saved(kind) / part}


AROUND = "from the folder around it, "
PIXELS = "model: UNet2DModel in pixels"
UNUSED = "scheduler settings that are not used: "
CASES = [
    case("an average of the weights beside them", "pixels", averaged,
         says=("UNet: 'unet'; --unet unet_ema chooses 'unet_ema'",)),
    case("the average is chosen", "pixels", averaged, options={"unet": "unet_ema"},
         says=("UNet: 'unet_ema'; --unet unet chooses 'unet'",)),
    case("one UNet needs no word", "pixels", lambda f: None, says=(PIXELS,)),
    case("another UNet is chosen than there is", "pixels", averaged,
         options={"unet": "unet_best"}, refused="Choose with --unet: unet, unet_ema."),
    case("a checkpoint in the output of training", "pixels",
         lambda f: checkpoint(f, True),
         says=(PIXELS, "scheduler: from the folder around it, 'pixels'", "unet_ema")),
    case("a checkpoint of a model of texts", "texts", lambda f: checkpoint(f, True),
         says=("text to image", f"text_encoder: {AROUND}", f"vae: {AROUND}")),
    case("a checkpoint without a scheduler", "pixels", lambda f: checkpoint(f, False),
         refused="Give the folder or file of the scheduler with --scheduler."),
    case("the UNet in a checkpoint", "pixels",
         lambda f: checkpoint(f, True) / "unet_ema",
         says=(PIXELS, "scheduler: from the folder around it, 'pixels'")),
    case("a folder of checkpoints", "pixels", outputs,
         refused="Give one of its checkpoints, such as 'checkpoint-1000'."),
    case("a UNet alone", "pixels", lonely, refused="with --scheduler."),
    case("a UNet alone, with the file of a scheduler", "pixels", lonely, says=(PIXELS,),
         options=its_scheduler("pixels", SCHEDULER)),
    case("a UNet alone, with the folder of a scheduler", "pixels", lonely,
         says=(PIXELS,), options=its_scheduler("pixels", "scheduler")),
    case("a UNet alone, with the pipeline of a scheduler", "pixels", lonely,
         says=(PIXELS,), options=its_scheduler("pixels")),
    case("a scheduler that is none", "pixels", lonely,
         options=its_scheduler("pixels", "unet"), refused="has no table of betas"),
    case("a scheduler that is not there", "pixels", lonely,
         options=its_scheduler("pixels", "x"), refused="not a file of a scheduler's"),
    case("the UNet of a pipeline", "texts", lambda f: f / "unet",
         says=("text to image", "tokenizer: from the folder around it")),
    case("one file for all", "pixels", lambda f: f / "unet" / PLAIN,
         refused="is a file. Convert it to diffusers' folders"),
    case("a folder that is not there", "pixels", lambda f: f / "x",
         refused="There is no folder"),
    case("thresholding", "pixels", set_in(SCHEDULER, thresholding=True),
         says=(f"{UNUSED}thresholding True; samples are drawn by DDIM or DDPM",)),
    case("a large variance", "pixels", set_in(SCHEDULER, variance_type="fixed_large"),
         says=(f"{UNUSED}variance_type fixed_large",)),
    case("nothing is left out", "pixels", lambda f: None, never=(*UNTOLD, UNUSED)),
    case("the scheduler of Stable Diffusion", "texts", lambda f: None,
         says=(f"{UNUSED}skip_prk_steps True, steps_offset 1;",)),
    case("betas that DDIM does not have", "pixels",
         set_in(SCHEDULER, beta_schedule="sigmoid"),
         refused="beta_schedule is 'sigmoid', which DDIM does not have; it has linear"),
    case("betas that are not there", "pixels", set_in(SCHEDULER, beta_schedule="x"),
         refused="beta_schedule is 'x', which DDIM does not have"),
    case("no number of timesteps", "pixels",
         set_in(SCHEDULER, num_train_timesteps="many"),
         refused="cannot be made from the settings of the DDPMScheduler: clip_sample"),
    case("a size that its blocks cannot halve", "pixels",
         set_in("unet/config.json", sample_size=15),
         refused="cannot take examples of 3x15x15: its pass fails after its layer"),
    case("blocks that nobody knows", "pixels",
         set_in("unet/config.json", down_block_types=["Foo", "Bar"]),
         refused="The settings in 'unet' are not those of a UNet2DModel"),
    case("weights that overflow", "pixels",
         lambda f: huge(f, f"unet/{PLAIN}", "conv_in.weight"),
         refused="The layer 'conv_in' gives values that are not numbers"),
    case("an autoencoder that overflows", "texts",
         lambda f: huge(f, f"vae/{PLAIN}", "decoder.conv_out.weight"),
         refused="The autoencoder gives values that are not numbers"),
]  # fmt: skip
