"""Make collections and ask them: `python -m precompute STAGE --collection NAME`."""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import torch

from core.checks import check_classes
from core.config import DATA_DIR, CollectionConfig, MethodConfig
from core.data.datasets import load_dataset
from core.drawing import Drawing
from core.evidence.same_seed import SAME_SEED, read_same_seed, same_seed_table
from core.evidence.stored import evidence_folder, read_evidence
from core.evidence.tables import make_table
from core.explorer.explorer import Cancelled, Explorer, Lens, open_explorer
from core.files.texts import one_line, safe_csv
from core.files.whole import Damaged, is_full, trouble
from core.labels import label_of
from core.lenses import check_lens, parse_region, parse_timesteps
from core.model.checkpoint import denoiser_from_bytes
from core.model.model_folders import SavedModel
from core.model.pipelines import read_pipeline
from core.model.prompts import TextConditioned, check_captions
from core.model.trial import try_out
from core.presets import COLLECTIONS
from precompute.machinery.out import check_out, write_out
from precompute.machinery.parallel import (
    first_one_first,
    joined,
    own_device,
    parse_part,
    rank_and_size,
)
from precompute.machinery.progress import telling
from precompute.machinery.settings import has_results, settings_for
from precompute.machinery.turns import taken_turn
from precompute.machinery.workspace import workspace_of
from precompute.retraining.evidence import make_evidence
from precompute.retraining.ready import needed_weights
from precompute.stages.build import build
from precompute.stages.clip import train_clip
from precompute.stages.curvature import fit_curvature
from precompute.stages.errors import tell_errors
from precompute.stages.fidelity import fidelity, write_fidelity
from precompute.stages.methods import compute_methods
from precompute.stages.repeats import measure_coverage
from precompute.stages.samples import make_samples
from precompute.stages.stages import begun, compute, ship_weights
from precompute.verbs.answers import store_answers
from precompute.verbs.attribute import DIGITS, answer_table, attribute
from precompute.verbs.options import parser
from precompute.verbs.own import (
    Prompts,
    Selection,
    describe_model,
    describe_saved,
    import_model,
    inspect_data,
    make_own,
    own_settings,
    parse_keep,
)
from precompute.verbs.plan import plan, printed
from precompute.verbs.retrain import run_retrain
from precompute.verbs.sheet import contact_sheet, write_sheet


def selection(options: argparse.Namespace) -> Selection:
    """Return which pictures are wanted."""
    keep = parse_keep(options.keep)
    return Selection(
        options.split,
        keep,
        options.index,
        options.limit,
        allow_outside=options.allow_outside,
        drop_duplicates=options.drop_duplicates,
        classes=options.classes and tuple(options.classes.split(",")),
        credits=getattr(options, "credits", None),
    )


def changes_of(options: argparse.Namespace) -> list[str]:
    """Return all settings that are given on the command line, as `--set` takes them."""
    changes = list(options.set)
    for name, place in OWN_OPTIONS.items():
        if (value := getattr(options, name, None)) is not None:
            changes.append(f"{place}={value}")
    return changes


def check_data_options(options: argparse.Namespace) -> None:
    """Refuse options about images that no --data names: they would do nothing.

    Raises:
        ValueError: If there are.
    """
    if getattr(options, "data", None) is not None:
        return
    for name in ("classes", "credits", "split", "keep", "index", "limit"):
        if getattr(options, name, None):
            raise ValueError(
                f"`--{name}` is about the images that --data PATH names, and there is "
                "no --data. Give it, or omit both."
            )


OWN_OPTIONS = {
    "seed": "seed",
    "ggn": "curvature.ggn",
    "kfac_approx": "curvature.kfac_approx",
}


def chosen_config(options: argparse.Namespace, root: Path) -> CollectionConfig:
    """Return the settings of a collection, made anew where its pictures are given."""
    name, work, changes = options.collection, options.work, changes_of(options)
    check_data_options(options)
    if getattr(options, "data", None) is not None:
        recipe, chosen = options.preset or "small", selection(options)
        anew = not has_results(name, root, work)
        make = name, options.data, recipe, chosen, changes, anew
        return first_one_first(lambda: make_own(*make))
    return settings_for(name, root, work, options.preset, changes)


def run_import(options: argparse.Namespace) -> None:
    """Say what a saved model is; with its pictures, make a collection's settings."""
    saved = SavedModel(
        options.folder, options.lora, options.unet or "", options.scheduler
    )
    denoiser = read_pipeline(saved)
    try_out(denoiser)
    print("\n".join([*describe_model(denoiser), *describe_saved(saved)]))
    if options.collection is None and options.data is None:
        return
    if options.collection is None or options.data is None:
        raise ValueError(
            "To make a collection give both --collection NAME and --data PATH, the "
            "pictures that the model was trained on."
        )
    chosen = selection(options)
    if options.caption or options.prompt:
        if not isinstance(denoiser.unet, TextConditioned):
            raise ValueError(
                "--caption and --prompt are for text-to-image models, and this is "
                "none. Leave them away."
            )
        chosen = replace(chosen, prompts=Prompts(options.caption, options.prompt))
    del denoiser  # a large one need not be in memory twice
    import_model(saved, options.collection, options.data, chosen, options.set)
    print(f"Next: python -m precompute build --collection {options.collection}")


def run_stage(options: argparse.Namespace) -> None:
    """Run one stage; what it needs from earlier stages is made or loaded first."""
    root = options.root or DATA_DIR / "collections"
    if options.verb == "plan":
        run_plan(options, root)
        return
    config = chosen_config(options, root)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = own_device(options.device)
    if options.verb == "build":
        if path := build(config, root, options.work, device):
            print(path)
        return
    with joined(device):
        if options.verb == "retrain":
            run_retrain(config, options, root, own_part(options), device)
            return
        if options.verb == "evidence":
            run_evidence(config, options, root, device)
            return
        if options.verb == "gradients":
            compute(config, root, options.work, device)
            return
        dataset = load_dataset(config.data)
        check_classes(config, len(dataset.class_names))
        workspace = workspace_of(config, options.work)
        if options.verb == "fidelity":
            weights = needed_weights(config, options.work)
        else:
            weights = first_one_first(lambda: begun(config, dataset, workspace, device))
        denoiser = denoiser_from_bytes(weights).to(device)
        check_captions(denoiser.unet, dataset.class_names)
        if options.verb == "train":
            shipped = config.name in COLLECTIONS
            own = workspace.path("train", "denoiser.safetensors")
            print(ship_weights(config, weights) if shipped else own)
        elif options.verb == "curvature":
            fit_curvature(config, dataset, denoiser, workspace)
        elif options.verb == "samples":
            make_samples(config, denoiser, dataset, workspace)
        elif options.verb == "fidelity":
            result = fidelity(config, dataset, denoiser, workspace, options.examples)
            write_fidelity(result, options.out)


def run_plan(options: argparse.Namespace, root: Path) -> None:
    """Print what a build would take; nothing is kept of it."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device, changes = own_device(options.device), changes_of(options)
    check_data_options(options)
    if options.data is None:
        about = options.collection, root, options.work, options.preset, changes
        config = settings_for(*about)
        print(printed(plan(config, options.work, device), root))
        return
    with TemporaryDirectory(prefix="afterimage-") as folder:
        recipe, chosen = options.preset or "small", selection(options)
        own = options.collection, options.data, recipe, chosen, changes
        config = own_settings(*own, Path(folder))
        data = replace(config.data, path=str(Path(folder) / config.data.path))
        dataset = load_dataset(data)
        print(printed(plan(config, options.work, device, dataset), root))


def run_evidence(config, options: argparse.Namespace, root: Path, device: str) -> None:
    """Print a table as CSV, or make what the tables come from."""
    if options.table is not None:
        folder = evidence_folder(root, config)
        evidence = read_evidence(folder)
        if options.table == SAME_SEED:
            found = read_same_seed(folder)
            table = same_seed_table(found, evidence.measured, options.measurement)
        else:
            table = make_table(evidence, options.table, options.measurement)
        sys.stdout.write(safe_csv(table, "%.6g"))
        return
    asked = {
        "num_samples": options.samples,
        "probability_draws": options.probability_draws,
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    part = own_part(options)
    folder = make_evidence(config, root, options.work, part, device, asked, options.add)
    if folder is not None:
        print(folder)


def own_part(options: argparse.Namespace) -> tuple[int, int]:
    """Return this process's share of the work: as asked, else torchrun's."""
    return parse_part(options.part) if options.part else rank_and_size()


def run_methods(options: argparse.Namespace) -> None:
    """Make what the methods need, and print where it lies."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = own_device(options.device)
    settings = MethodConfig(options.dim, options.projection, options.draws)
    root = options.root or DATA_DIR / "collections"
    only = options.only.split(",")
    with joined(device):
        paths = compute_methods(
            root, options.collection, options.work, device, only, settings
        )
        if rank_and_size()[0] == 0:
            print("\n".join(map(str, paths)))


def run_attribute(options: argparse.Namespace) -> None:
    """Answer one question and write the CSV."""
    explorer = open_explorer(options.collection, options.root)
    lens = Lens(
        options.method,
        options.measurement,
        options.timesteps and parse_timesteps(options.timesteps),
        options.region and parse_region(options.region),
        options.draws,
        options.damping,
        options.index,
    )
    check_lens(lens, explorer.num_train_timesteps, explorer.config.data.image_size)
    label = chosen_label(explorer, options)
    if options.image is not None:
        query = explorer.query_from_upload(read_file(options.image), label)
    elif options.sample is not None:
        query = explorer.query_from_gallery(options.sample)
    elif options.example is not None:
        query = explorer.query_from_example(options.example)
    else:
        query = explorer.generate(
            Drawing(
                label, options.seed, options.sampler, options.steps, options.guidance
            )
        )
    if options.invert:
        query = explorer.inverted(query)
    answer = attribute(explorer, query, lens)
    if answer.note:
        print(answer.note, file=sys.stderr)
    table = answer_table(explorer, answer)
    if options.out is None:
        sys.stdout.write(safe_csv(table, DIGITS))
    else:
        write_out(options.out, safe_csv(table, DIGITS).encode())


def chosen_label(explorer: Explorer, options: argparse.Namespace) -> int | None:
    """Return the class that a picture is drawn or taken for, and say which it is.

    Raises:
        ValueError: If the picture has a class of its own.
    """
    if options.label is None:
        return None
    if options.image is None and options.seed is None:
        raise ValueError(
            "--label is for --image and --seed: a gallery sample and a training "
            "picture have a class of their own. Omit it."
        )
    label = label_of(options.label, explorer.class_names())
    print(f"class {label}: {one_line(explorer.class_words(label))}", file=sys.stderr)
    return label


def read_file(path: Path) -> bytes:
    """Return a file's bytes.

    Raises:
        ValueError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read ({error.strerror}). Give the path of a picture."
        ) from error


# What looks or prints; all else makes something that somebody may wait for.
QUICK = ("attribute", "inspect-data", "plan", "sheet")


def run(options: argparse.Namespace) -> None:
    """Run a verb."""
    if getattr(options, "out", None) is not None:
        check_out(options.verb, options.out)
    if options.verb == "attribute":
        run_attribute(options)
    elif options.verb == "methods":
        run_methods(options)
    elif options.verb == "answers":
        root = options.root or DATA_DIR / "collections"
        print(store_answers(root, options.collection, options.work))
    elif options.verb == "errors":
        root = options.root or DATA_DIR / "collections"
        print(tell_errors(root, options.collection, options.work))
        measure_coverage(root, options.collection, options.work)
    elif options.verb == "sheet":
        explorer = open_explorer(options.collection, options.root)
        write_sheet(contact_sheet(explorer), options.out)
    elif options.verb == "inspect-data":
        print(inspect_data(options.path, selection(options)))
    elif options.verb == "import-model":
        run_import(options)
    elif options.verb == "clip":
        train_clip(options.out, options.seed, options.device, options.steps)
    else:
        run_stage(options)


def is_looked_on(options: argparse.Namespace) -> bool:
    """Return whether the app should say how far a command is."""
    named = getattr(options, "collection", None) is not None
    return named and options.verb not in QUICK and not getattr(options, "table", None)


def main() -> int:
    """Run a verb; a person's mistake is one sentence and exit status 1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may lack letters of a name
            stream.reconfigure(errors="backslashreplace")
    options = parser().parse_args()
    root = getattr(options, "root", None) or DATA_DIR / "collections"
    try:
        with ExitStack() as stack:
            if is_looked_on(options):
                about = options.verb, options.collection, root
                work = getattr(options, "work", None)
                part = getattr(options, "part", None)
                stack.enter_context(taken_turn(*about, work, part))
                stack.enter_context(telling(root, options.collection, options.verb))
            run(options)
    except (LookupError, ValueError) as error:
        print(one_line(error.args[0] if error.args else error), file=sys.stderr)
        return 1
    except Damaged as error:
        print(
            f"'{error}' is damaged. Remove it and run the same command again: only "
            "what it holds is made anew.",
            file=sys.stderr,
        )
        return 1
    except (OSError, duckdb.Error) as error:
        if not isinstance(error, OSError) and not is_full(error):
            raise
        print(one_line(trouble(error)), file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Cancelled):
        print("Stopped; run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
