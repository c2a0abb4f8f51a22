"""Trainings in which every image brings its own draws: they differ in images alone."""

import hashlib
import io
import sys
from contextlib import redirect_stderr
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from core.config import RetrainConfig
from core.data.datasets import load_dataset
from core.evidence.evaluation import predicted_changes
from core.evidence.same_seed import read_same_seed
from core.explorer.explorer import open_explorer
from core.lenses import Lens
from core.measure.draws import subset_mask
from core.model.checkpoint import denoiser_from_bytes, denoiser_to_bytes
from core.presets import collection_config
from precompute.__main__ import main
from precompute.machinery.config import MeasureConfig, SameSeedConfig
from precompute.machinery.workspace import open_workspace
from precompute.retraining.jobs import Job, subset_jobs
from precompute.retraining.own_scores import foreign_query
from precompute.retraining.ready import open_gallery
from precompute.retraining.same_seed import common_config, same_seed_jobs
from precompute.retraining.train import model_facts, retrain, retrain_jobs
from precompute.stages.batches import seen_rows, training_batch
from precompute.stages.stages import needed_weights
from precompute.stages.train import new_denoiser, train


@pytest.fixture(scope="module")
def config():
    """Return Fashion-2 in seconds, two visits of every image, with common draws."""
    config = collection_config("fashion2", "tiny")
    train = replace(config.train, num_steps=9, checkpoint_every=2, common_draws=True)
    return replace(config, train=train)


@pytest.fixture(scope="module")
def dataset(config):
    """Return the 32 images of the tiny preset."""
    return load_dataset(config.data)


def generator(seed, purpose, *keys) -> torch.Generator:
    """Return the generator of a purpose, written down anew."""
    text = "\x1f".join(map(str, (seed, purpose, *keys)))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
    return torch.Generator().manual_seed(number)


def trained_by_hand(config, dataset, weights) -> list[torch.Tensor]:
    """Return the averaged weights of a dense loop: every image, times its weight.

    Orders, draws, AdamW, its schedule, clipping and the average are all written out.
    """
    settings, count = config.train, len(dataset)
    denoiser = new_denoiser(config, dataset)
    values = list(denoiser.unet.parameters())
    first, second = ([torch.zeros_like(v) for v in values] for _ in range(2))
    average = [v.detach().clone() for v in values]
    x_0 = dataset.images()
    for step in range(settings.num_steps):
        total = torch.zeros(())
        for turn in range(step * settings.batch_size, (step + 1) * settings.batch_size):
            visit, place = turn // count, turn % count
            places = [
                torch.rand(
                    1,
                    generator=generator(config.seed, "place", image, visit),
                    dtype=torch.float64,
                ).item()
                for image in dataset.ids.tolist()
            ]
            position = int(np.argsort(places)[place])
            g = generator(config.seed, "visit", dataset.ids[position], visit)
            t = torch.randint(denoiser.num_train_timesteps, (), generator=g)
            noise = torch.randn(denoiser.shape, generator=g)
            torch.rand((), generator=g)  # of the label
            clean = x_0[position]
            if torch.rand((), generator=g) < 0.5 and settings.horizontal_flip:
                clean = clean.flip(-1)
            alpha = denoiser.alphas_cumprod[t]
            x_t = alpha.sqrt() * clean + (1 - alpha).sqrt() * noise
            output = denoiser.unet(x_t[None], t[None]).sample[0]
            loss = (output - noise).square().sum()
            total = total + weights[position] * loss / noise.numel()
        gradients = torch.autograd.grad(total / settings.batch_size, values)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        shrink = min(1.0, settings.max_grad_norm / (norm.item() + 1e-6))
        rate = settings.learning_rate * min(1.0, step / settings.warmup_steps)
        if step >= settings.warmup_steps:
            done = step - settings.warmup_steps
            done = done / (settings.num_steps - settings.warmup_steps)
            rate *= 0.5 * (1 + np.cos(np.pi * done))
        decay = 0.0
        if step:
            decay = min(settings.ema_decay, 1 - (1 + step) ** -0.75)
        with torch.no_grad():
            for v, g, m, s, mean in zip(
                values, gradients, first, second, average, strict=True
            ):
                g = g * shrink
                m.mul_(0.9).add_(0.1 * g)
                s.mul_(0.999).add_(0.001 * g**2)
                v.mul_(1 - rate * settings.weight_decay)
                size = (s / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
                v.sub_(rate * m / (1 - 0.9 ** (step + 1)) / size)
                mean.lerp_(v, 1 - decay)
    return average


def averaged(config, dataset, kept, folder, monkeypatch) -> list[torch.Tensor]:
    """Return the averaged weights of the product's training, in float32."""
    found = []

    def recorded(denoiser):
        found.extend(v.detach().clone() for v in denoiser.unet.parameters())
        return denoiser_to_bytes(denoiser)

    monkeypatch.setattr("precompute.stages.train.denoiser_to_bytes", recorded)
    workspace = open_workspace(config, folder)
    train(config, dataset.restricted(kept), workspace, whole=dataset)
    return found


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_training_matches_a_dense_loop(config, dataset, tmp_path, monkeypatch, share):
    """All images, and half of them, which the loop multiplies by 0 instead."""
    kept = subset_mask(len(dataset), 0, 0, share)
    found = averaged(config, dataset, kept, tmp_path, monkeypatch)
    wanted = trained_by_hand(config, dataset, torch.from_numpy(kept).float())
    start = list(new_denoiser(config, dataset).unet.parameters())
    squares = [(a - b).square().sum() for a, b in zip(found, wanted, strict=True)]
    steps = [(a - b).square().sum() for a, b in zip(wanted, start, strict=True)]
    # AdamW divides gradients near zero by their own size, so that rounding grows.
    assert sum(squares).sqrt() < 1e-4 * sum(steps).sqrt()


def test_without_an_image_all_others_keep_their_draws(config, dataset):
    """Draws and turns belong to (id, visit), whatever the images beside it are."""
    denoiser = new_denoiser(config, dataset)

    def visits(ids) -> dict:
        """Return every draw by image and how often it was seen, and the order."""
        found, order = {}, []
        for step in range(2 * len(ids) // config.train.batch_size):
            batch = training_batch(config, denoiser, ids, step)
            for row, position in enumerate(batch.index.tolist()):
                image = int(ids[position])
                key = image, sum(image == other for other, _ in order)
                order.append(key)
                found[key] = [
                    batch.timesteps[row],
                    batch.noise[row],
                    batch.drop[row],
                    batch.flip[row],
                ]
        return found, order

    every, order = visits(dataset.ids)
    fewer = np.delete(dataset.ids, [3, 8, 9, 20, 21, 22, 23, 30])
    others, shorter = visits(fewer)
    assert len(every) == 64 and len(others) == 48
    for key, values in others.items():
        torch.testing.assert_close(values, every[key], rtol=0, atol=0)
    assert shorter == [key for key in order if key[0] in set(fewer.tolist())]
    first, second = ([image for image, visit in order if visit == v] for v in (0, 1))
    assert sorted(first) == sorted(second) == dataset.ids.tolist() and first != second
    timesteps = torch.stack([values[0] for values in every.values()])
    assert timesteps.unique().numel() > 55  # of 64 draws out of 1,000


def test_weight_zero_is_the_gradient_without_the_image(config, dataset):
    """The others' gradients keep their size: the divisor stays the batch size."""
    denoiser = new_denoiser(config, dataset).double()
    with torch.no_grad():  # diffusers starts the last layer at zero
        g = torch.Generator().manual_seed(0)
        for parameter in denoiser.unet.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=g).double())
    batch = training_batch(config, denoiser, dataset.ids, 1)
    kept = torch.ones(len(dataset))
    kept[batch.index[[2, 5]]] = 0
    seen = batch[seen_rows(batch, kept)]
    assert len(seen.index) == len(batch.index) - 2

    def gradient(batch, weights) -> torch.Tensor:
        losses = denoiser.losses(
            batch.pictures(dataset.images().double()),
            batch.noise.double(),
            batch.timesteps,
            None,
        )
        return torch.cat([
            part.flatten()
            for part in torch.autograd.grad(
                (weights * losses).sum(), list(denoiser.unet.parameters())
            )
        ])

    dense = gradient(batch, kept[batch.index].double())
    each = [gradient(batch[torch.tensor([row])], 1.0) for row in range(8)]
    alone = sum(g for row, g in enumerate(each) if row not in (2, 5))
    torch.testing.assert_close(gradient(seen, 1.0), dense, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(alone, dense, rtol=1e-9, atol=1e-9)
    nobody = seen_rows(batch, torch.zeros(len(dataset)))
    assert nobody.tolist() == [0]  # a step that nobody of the kept has a turn in


def test_resumed_shared_and_fresh_are_one(config, dataset, tmp_path):
    """Interrupted in a step, or shared among processes: the same last bits."""
    jobs = same_seed_jobs(
        config, SameSeedConfig((0.1, 0.5), 1, 1), len(dataset), tmp_path / "straight"
    )
    retrain_jobs(config, dataset, jobs)
    other = same_seed_jobs(
        config, SameSeedConfig((0.1, 0.5), 1, 1), len(dataset), tmp_path / "shared"
    )
    with pytest.MonkeyPatch.context() as patch:

        def failing(config, denoiser, ids, step):
            if step == 5:
                raise KeyboardInterrupt
            return training_batch(config, denoiser, ids, step)

        patch.setattr("precompute.stages.train.training_batch", failing)
        with pytest.raises(KeyboardInterrupt):
            retrain_jobs(config, dataset, other, (1, 2))
    for number in (1, 0):
        retrain_jobs(config, dataset, other, (number, 2))
    for a, b in zip(jobs, other, strict=True):
        first, second = (denoiser_from_bytes(j.path.read_bytes()) for j in (a, b))
        for name, value in first.state_dict().items():
            assert torch.equal(value, second.state_dict()[name])


def test_the_full_model_is_the_one_that_train_makes(config, dataset, tmp_path):
    """Seed 0 is the collection's own; a half differs in its images alone."""
    jobs = same_seed_jobs(config, SameSeedConfig(), len(dataset), tmp_path)
    data = train(config, dataset, open_workspace(config, tmp_path / "work"))
    full, straight = (
        denoiser_from_bytes(part).state_dict()
        for part in (retrain(config, dataset, jobs[0]).read_bytes(), data)
    )
    assert all(torch.equal(full[name], value) for name, value in straight.items())
    settings = [job.settings(config) for job in jobs]
    assert len({one.fingerprint() for one in settings}) == 2  # one for each seed
    assert {one.train.num_steps for one in settings} == {config.train.num_steps}
    halves = subset_jobs(config, RetrainConfig(2, 2), len(dataset), tmp_path)
    assert {job.settings(config).fingerprint() for job in halves} == {
        one.fingerprint() for one in settings
    }


def test_removals_of_all_sizes_take_turns(config, dataset, tmp_path):
    """The first seed before those that repeat it; the half is that of fresh seeds."""
    settings = SameSeedConfig(num_subsets=3, num_repeated=1)
    jobs = same_seed_jobs(config, settings, len(dataset), tmp_path)
    whys = [job.why["same-seed"] for job in jobs]
    sizes = list(settings.fractions)
    assert [why["fraction"] for why in whys] == [0, *sizes * 3, 0, *sizes]
    assert [why["seed"] for why in whys] == [*[0] * 13, *[1] * 5]
    subsets = [-1, *[0] * 4, *[1] * 4, *[2] * 4, -1, *[0] * 4]
    assert [why["subset"] for why in whys] == subsets
    halves = subset_jobs(config, RetrainConfig(3), len(dataset), tmp_path)
    for job in jobs:
        why = job.why["same-seed"]
        assert (~job.kept).sum() == round(why["fraction"] * len(dataset))
        if why["fraction"] == 0.5:
            np.testing.assert_array_equal(job.kept, halves[why["subset"]].kept)


def test_trained_together_they_are_those_trained_alone(config, dataset, tmp_path):
    """Also of different sizes: all keep their turns."""
    settings = SameSeedConfig((0.1, 0.5), 1, 1)
    alone, stacked = (
        same_seed_jobs(config, settings, len(dataset), tmp_path / name)
        for name in ("alone", "stacked")
    )
    retrain_jobs(config, dataset, alone)
    retrain_jobs(config, dataset, stacked, together=3)
    start = new_denoiser(config, dataset).unet.state_dict()
    for a, b in zip(alone, stacked, strict=True):
        first, second = (
            denoiser_from_bytes(job.path.read_bytes()).unet.state_dict()
            for job in (a, b)
        )
        wrong = sum((first[k] - second[k]).square().sum() for k in start)
        moved = sum((first[k] - start[k]).square().sum() for k in start)
        assert wrong < 1e-4 * moved


def test_a_left_out_image_is_never_looked_at(config, dataset, tmp_path):
    """Blackening what is left out does not change the model."""
    kept = subset_mask(len(dataset), 0, config.seed)
    pixels = np.where(kept[:, None, None, None], dataset.pixels, 0)
    changed = replace(dataset, pixels=pixels)
    paths = [
        retrain(config, images, Job(tmp_path / f"{name}.safetensors", kept, (0, 0)))
        for name, images in (("a", dataset), ("b", changed))
    ]
    first, second = (denoiser_from_bytes(path.read_bytes()) for path in paths)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


def test_settings_without_common_draws_keep_their_fingerprint():
    """The shipped model of Fashion-2 and its evidence are found as before."""
    config = collection_config("fashion2")
    assert config.fingerprint("data", "model", "train") == "f170c42ccabc"
    assert common_config(config).fingerprint("train") != config.fingerprint("train")


def test_the_command_trains_and_measures_each_model(tmp_path, monkeypatch):
    """A small table for each model and the masks; a second call does nothing again."""

    def two_sizes(config, settings, count, folder):
        return same_seed_jobs(
            config, replace(settings, fractions=(0.1, 0.5)), count, folder
        )

    monkeypatch.setattr("precompute.retraining.same_seed.same_seed_jobs", two_sizes)
    monkeypatch.setattr(
        "precompute.retraining.same_seed.MeasureConfig",
        lambda: MeasureConfig(num_samples=2, num_draws=16, probability_draws=0),
    )
    root, work = tmp_path / "root", tmp_path / "work"
    root.mkdir()
    tiny = ["--collection", "fashion2", "--preset", "tiny", "--work", str(work)]
    monkeypatch.setattr("core.config.DATA_DIR", tmp_path)  # `train` ships its model
    monkeypatch.setattr(sys, "argv", ["precompute", "train", *tiny])
    with redirect_stderr(io.StringIO()):
        assert main() == 0  # what is asked about has to be trained
    call = ["precompute", "retrain", "--collection", "fashion2", "--preset", "tiny"]
    call += ["--same-seed", "--subsets", "1", "--seeds", "1", "--device", "cpu"]
    call += ["--root", str(root), "--work", str(work)]
    monkeypatch.setattr(sys, "argv", call)
    with redirect_stderr(io.StringIO()):
        assert main() == 0
    (folder,) = root.glob("fashion2-evidence-*/same-seed")
    names = {"full-0", "without-0.1-000-0", "without-0.5-000-0", "masks"}
    assert {path.stem for path in folder.iterdir()} == names
    masks = pd.read_parquet(folder / "masks.parquet").set_index("fraction")["kept"]
    bits = np.unpackbits(np.frombuffer(masks[0.5], np.uint8), count=32)
    np.testing.assert_array_equal(bits, subset_mask(32, 0, 0, 0.5))
    table = pd.read_parquet(folder / "without-0.5-000-0.parquet")
    assert set(table["kind"]) == {"same-seed"} and set(table["fraction"]) == {0.5}
    assert set(table["measurement"]) == {"loss", "elbo"}
    assert sorted(set(table["sample_id"])) == [0, 1]
    full = pd.read_parquet(folder / "full-0.parquet")
    assert (table["value"] != full["value"])[table["low"] < 0].all()
    (model,) = work.glob("fashion2/retrain-*/without-0.5-000-0.safetensors")
    assert model_facts(model)["num_kept"] == 16
    before = {
        path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()
    }
    with redirect_stderr(io.StringIO()):
        assert main() == 0
    after = {
        path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()
    }
    assert before == after
    scored_by_its_own_full_model(root, work, monkeypatch)


def scored_by_its_own_full_model(root, work, monkeypatch) -> None:
    """The full model of the same seed has weights, and so scores, of its own."""
    monkeypatch.setattr("precompute.retraining.own_scores.parts", lambda: ("trak",))
    call = ["precompute", "evidence", "--collection", "fashion2", "--preset", "tiny"]
    call += ["--same-seed", "--device", "cpu", "--root", str(root), "--work", str(work)]
    monkeypatch.setattr(sys, "argv", call)
    with redirect_stderr(io.StringIO()):
        assert main() == 0
    (evidence,) = root.glob("fashion2-evidence-*")
    truth = read_same_seed(evidence)
    assert {"ekfac", "kfac", "trak", "pixel"} <= set(truth.scores["method"])
    (own,) = work.glob("fashion2/retrain-*/full-0/collections")
    explorer = open_explorer("fashion2", own)
    (model,) = work.glob("fashion2/retrain-*/full-0.safetensors")
    config = collection_config("fashion2", "tiny")
    shipped = denoiser_from_bytes(needed_weights(config, work)).state_dict()
    weights = explorer.engine.denoiser.state_dict()
    full = denoiser_from_bytes(model.read_bytes()).state_dict()
    assert all(torch.equal(weights[name], value) for name, value in full.items())
    assert not all(torch.equal(weights[name], value) for name, value in shipped.items())
    gallery = open_gallery(config, work, "cpu")
    query = foreign_query(explorer, gallery, 1)
    np.testing.assert_allclose(query.x_0, gallery.samples["x_0"][1])
    kept = np.stack([mask[:32] for mask in truth.masks["kept"]])
    for method, damping in (("ekfac", np.nan), ("trak", "any")):
        rows = truth.scores.query("method == @method and sample_id == 1")
        rows = rows[rows["measurement"] == "loss"]
        given = rows["damping"].isna() if damping != "any" else rows["damping"] > 1e-6
        row = rows[given].iloc[0]
        one = None if np.isnan(row["damping"]) else float(row["damping"])
        scores = explorer.answer(query, Lens(method, damping=one, form="full")).scores
        wanted = predicted_changes(scores[None], kept)[0]
        atol = 1e-3 * wanted.std()
        np.testing.assert_allclose(row["predicted"], wanted, rtol=1e-3, atol=atol)
    explorer.close()
