"""Models trained again without some images: the same however the work was shared."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from core.config import DisjointConfig, RemovalConfig, RetrainConfig
from core.data.datasets import load_dataset
from core.evidence.stored import Evidence
from core.evidence.twins import find_twins, nulls_of, twins_folder
from core.measure.draws import subset_mask
from core.model.checkpoint import denoiser_from_bytes
from core.presets import collection_config
from precompute.__main__ import main
from precompute.machinery.parallel import parse_part
from precompute.retraining.jobs import (
    Job,
    disjoint_jobs,
    group_jobs,
    model_path,
    named_groups,
    recipe,
    removal_jobs,
    retrain_folder,
    subset_jobs,
)
from precompute.retraining.together import clip_each
from precompute.retraining.train import (
    keep_twins,
    model_facts,
    retrain,
    retrain_jobs,
    write_model,
)
from precompute.stages.batches import batch_indices, training_batch
from precompute.stages.train import new_denoiser


def tiny_config(**train):
    """Return Fashion-2 in seconds, with a checkpoint at every second step."""
    config = collection_config("fashion2", "tiny")
    settings = {"num_steps": 8, "checkpoint_every": 2} | train
    return replace(config, train=replace(config.train, **settings))


@pytest.fixture(scope="module")
def config():
    """Return the settings that the tests here train with."""
    return tiny_config()


@pytest.fixture(scope="module")
def dataset(config):
    """Return the 32 images of the tiny preset."""
    return load_dataset(config.data)


def retrain_subsets(config, settings, dataset, folder, part=(0, 1), together=1):
    """Train on random halves; return the files."""
    jobs = subset_jobs(config, settings, len(dataset), folder)
    return retrain_jobs(config, dataset, jobs, part, together=together)


def weights(path) -> dict[str, bytes]:
    """Return the bytes of every tensor in a model file."""
    with safe_open(path, "np") as file:
        return {key: file.get_tensor(key).tobytes() for key in file.keys()}


def test_parts_and_resume_give_the_same_weights(config, dataset, tmp_path):
    """Two processes' shares, one of them interrupted inside a model, change nothing."""
    settings = RetrainConfig(num_subsets=2, num_seeds=2)
    paths = retrain_subsets(config, settings, dataset, tmp_path / "one")
    assert len({path.name for path in paths}) == 4

    shared = tmp_path / "shared"
    with pytest.MonkeyPatch.context() as patch:

        def failing(step, *args):
            if step == 3:
                raise KeyboardInterrupt
            return batch_indices(step, *args)

        patch.setattr("precompute.stages.batches.batch_indices", failing)
        with pytest.raises(KeyboardInterrupt):
            retrain_subsets(config, settings, dataset, shared, (1, 2))
    assert not list(shared.glob("*.safetensors"))
    for number in (1, 0):
        retrain_subsets(config, settings, dataset, shared, (number, 2))
    for path in paths:
        assert weights(shared / path.name) == weights(path)
    assert not [path for path in shared.iterdir() if path.is_dir()]


def test_a_model_depends_on_its_pictures_and_its_seed(config, dataset, tmp_path):
    """Another subset, or another seed for the same subset, gives another model."""
    settings = RetrainConfig(num_subsets=2, num_seeds=2)
    paths = retrain_subsets(config, settings, dataset, tmp_path)
    kinds = {tuple(weights(path).values()) for path in paths}
    assert len(kinds) == 4
    facts = model_facts(model_path(tmp_path, 1, 0))
    assert facts["num_kept"] == 16 and facts["settings"]["train"]["num_steps"] == 4


def test_a_left_out_picture_has_no_effect(config, dataset, tmp_path):
    """Blackening the images that are left out does not change the model."""
    kept = subset_mask(len(dataset), 0, config.seed)
    pixels = np.where(kept[:, None, None, None], dataset.pixels, 0)
    changed = replace(dataset, pixels=pixels)
    a = retrain(config, dataset, Job(tmp_path / "a.safetensors", kept, (0, 0)))
    b = retrain(config, changed, Job(tmp_path / "b.safetensors", kept, (0, 0)))
    assert weights(a) == weights(b)


def test_a_file_made_from_other_pictures_is_refused(config, dataset, tmp_path):
    """A finished model is used again only for the images that made it."""
    path = tmp_path / "model.safetensors"
    first, second = (subset_mask(len(dataset), m, 0) for m in (0, 1))
    retrain(config, dataset, Job(path, first, (0, 0)))
    with pytest.raises(ValueError, match="was made with mask_sha256"):
        retrain(config, dataset, Job(path, second, (0, 0)))


def test_a_file_from_before_there_was_a_setting_is_known(config, dataset, tmp_path):
    """It was made with the default; with another value of it the file is refused."""
    job = Job(tmp_path / "m.safetensors", subset_mask(len(dataset), 0, 0), (0, 0))
    retrain(config, dataset, job)
    facts = model_facts(job.path)
    del facts["settings"]["train"]["common_draws"]
    del facts["settings"]["model"]["lapped"]
    write_model(job, job.path.read_bytes(), facts)
    before = job.path.read_bytes()
    assert retrain(config, dataset, job).read_bytes() == before
    other = replace(config, model=replace(config.model, norm_eps=1e-4))
    with pytest.raises(ValueError, match="was made with settings"):
        retrain(other, dataset, job)


def test_models_trained_together_are_those_trained_alone(config, dataset, tmp_path):
    """Stacked under vmap, interrupted and resumed: equal up to rounding to half."""
    settings = RetrainConfig(num_subsets=3, num_seeds=1)
    alone = retrain_subsets(config, settings, dataset, tmp_path / "alone")
    jobs = subset_jobs(config, settings, len(dataset), tmp_path)
    with pytest.MonkeyPatch.context() as patch:

        def failing(config, denoiser, count, step):
            if step == 3:
                raise KeyboardInterrupt
            return training_batch(config, denoiser, count, step)

        patch.setattr("precompute.retraining.together.training_batch", failing)
        with pytest.raises(KeyboardInterrupt):
            retrain_subsets(config, settings, dataset, tmp_path, together=3)
    together = retrain_subsets(config, settings, dataset, tmp_path, together=3)
    for job, path, other in zip(jobs, alone, together, strict=True):
        start = prediction(new_denoiser(job.settings(config), dataset))
        a, b = (prediction(denoiser_from_bytes(p.read_bytes())) for p in (path, other))
        assert (a - b).norm() < 0.02 * (a - start).norm()


def test_a_finished_model_is_never_trained_again(config, dataset, tmp_path):
    """Whatever it is trained together with: its file stays as it is."""
    few, more = (RetrainConfig(num_subsets=count) for count in (1, 3))
    (first,) = retrain_subsets(config, few, dataset, tmp_path)
    before = first.read_bytes()
    paths = retrain_subsets(config, more, dataset, tmp_path, together=3)
    assert first in paths and all(path.exists() for path in paths)
    assert first.read_bytes() == before
    assert not list(tmp_path.glob("*.work"))


def test_the_full_model_is_not_trained_again_where_draws_are_common(
    dataset, tmp_path, monkeypatch
):
    """Without draws of its own it is the shipped model, to the last bit."""
    config = tiny_config(common_draws=True)
    every = np.ones(len(dataset), dtype=bool)
    whole = Job(tmp_path / "a.safetensors", every, ("removed", 0))
    trained = weights(retrain(config, dataset, whole))
    monkeypatch.setattr("core.config.DATA_DIR", tmp_path)
    config.shipped_weights_path().parent.mkdir()
    config.shipped_weights_path().write_bytes(whole.path.read_bytes())
    monkeypatch.setattr("precompute.retraining.train.train", None)  # it is not called
    again = Job(tmp_path / "b.safetensors", every, ("removed", 0))
    assert weights(retrain(config, dataset, again)) == trained
    assert model_facts(again.path)["seconds"] == 0
    for job in (
        Job(tmp_path / "c.safetensors", ~every, ("removed", 0)),
        Job(tmp_path / "d.safetensors", every, ("removed", 1), seed_number=1),
    ):
        with pytest.raises(TypeError):  # these have to be trained
            retrain(config, dataset, job)


@pytest.mark.parametrize("together", [1, 2])
def test_a_training_of_other_pictures_is_not_gone_on_from(
    config, dataset, tmp_path, monkeypatch, together
):
    """A checkpoint of one choice of images is not taken for another of that name."""
    masks = [subset_mask(len(dataset), m, 0) for m in range(4)]

    def jobs(folder, *numbers):
        return [
            Job(folder / f"m{place}.safetensors", masks[number], (place,))
            for place, number in enumerate(numbers)
        ]

    seen = []

    def failing(config, denoiser, count, step):
        seen.append(step)
        if step == 3:
            raise KeyboardInterrupt
        return training_batch(config, denoiser, count, step)

    where = (
        "precompute.retraining.together" if together > 1 else "precompute.stages.train"
    )
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f"{where}.training_batch", failing)
        retrain_jobs(config, dataset, jobs(tmp_path, 0, 1), together=together)
    assert seen and list(tmp_path.glob("*.work"))
    for folder in (tmp_path, tmp_path / "afresh"):
        retrain_jobs(config, dataset, jobs(folder, 2, 3), together=together)
    for name in ("m0.safetensors", "m1.safetensors"):
        found, fresh = (
            load_file(folder / name) for folder in (tmp_path, tmp_path / "afresh")
        )
        assert all(torch.equal(found[key], fresh[key]) for key in fresh)


@torch.no_grad()
def prediction(denoiser) -> torch.Tensor:
    """Return what a model predicts for fixed noise."""
    generator = torch.Generator().manual_seed(0)
    x_t = torch.randn(4, *denoiser.shape, generator=generator)
    return denoiser.eval().predict(x_t, torch.tensor([10, 200, 500, 900]), None)


def test_each_model_has_its_own_gradient_norm():
    """Against torch's clipping of one model at a time."""
    g = torch.Generator().manual_seed(0)
    stacked = [torch.randn(3, 4, 5, generator=g), torch.randn(3, 2, generator=g)]
    stacked = [
        values * torch.tensor([0.01, 1, 9]).view(3, *[1] * (values.ndim - 1))
        for values in stacked
    ]
    expected = []
    for i in range(3):
        parameters = [torch.nn.Parameter(torch.zeros_like(v[i])) for v in stacked]
        for parameter, values in zip(parameters, stacked, strict=True):
            parameter.grad = values[i].clone()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        expected.append([parameter.grad for parameter in parameters])
    clip_each(stacked, 1.0)
    for i in range(3):
        torch.testing.assert_close([values[i] for values in stacked], expected[i])


def test_weights_that_saw_every_picture_are_refused():
    """Going on from the full model's start would leave nothing out."""
    config = collection_config("glyphs")
    with pytest.raises(ValueError, match="weights that have seen every image"):
        recipe(config, 0.5, 0, 0)


@pytest.mark.parametrize("text", ["2/2", "1", "a/b", "-1/2"])
def test_an_impossible_part_is_refused(text):
    """The message shows how to write it."""
    with pytest.raises(ValueError, match="such as 0/2 and 1/2"):
        parse_part(text)


def test_kill_minus_nine_changes_nothing(tmp_path):
    """The command, killed at a random moment and started again, makes every model."""
    command = [sys.executable, "-m", "precompute", "retrain", "--collection"]
    command += ["fashion2", "--preset", "tiny", "--device", "cpu", "--subsets", "3"]
    config = collection_config("fashion2", "tiny")
    for name in ("straight", "killed"):
        call = [*command, "--work", str(tmp_path / name)]
        if name == "killed":
            folder = retrain_folder(config, tmp_path / name)
            process = subprocess.Popen(call, stderr=subprocess.DEVNULL)
            while process.poll() is None and not list(folder.glob("retrained-001*")):
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert len(list(folder.glob("*.safetensors"))) < 3
        subprocess.run(call, check=True, stderr=subprocess.DEVNULL)
    made = [retrain_folder(config, tmp_path / name) for name in ("straight", "killed")]
    for m in range(3):
        first, second = (weights(model_path(folder, m, 0)) for folder in made)
        assert first == second


def test_the_command_refuses_a_wrong_part(tmp_path, monkeypatch, capsys):
    """One sentence and exit status 1."""
    arguments = ["retrain", "--collection", "fashion2", "--preset", "tiny"]
    arguments += ["--part", "3/2", "--work", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["precompute", *arguments])
    assert main() == 1
    assert "'3/2' is not a part of the work" in capsys.readouterr().err


def test_removals_leave_out_what_matters_most(config, dataset, tmp_path):
    """Beside random removals of the same size; all start from the same weights."""
    count = len(dataset)
    scores = np.random.default_rng(0).normal(size=(3, count)).astype(np.float32)
    record = {"measurement": "loss", "low": -1, "high": -1, "damping": np.nan}
    record |= {"method": "ekfac", "num_draws": 64, "variant": "", "source": "exact"}
    rows = [record | {"sample_id": i, "scores": row} for i, row in enumerate(scores)]
    masks = np.ones((1, count), dtype=bool)
    evidence = Evidence({"num_draws": 64}, masks, None, pd.DataFrame(rows))
    settings = RemovalConfig(("ekfac",), (0.25,), num_samples=2, num_random=2)
    jobs = removal_jobs(config, settings, evidence, tmp_path)
    assert [job.why["removed"]["method"] for job in jobs] == ([
        "none",
        "random",
        "random",
        "ekfac",
        "ekfac",
    ])
    assert [job.kept.sum() for job in jobs] == [32, 24, 24, 24, 24]
    for job, row in zip(jobs[3:], scores, strict=False):
        assert row[~job.kept].min() > row[job.kept].max()
    assert len({job.settings(config).seed for job in jobs}) == 1
    with pytest.raises(LookupError, match="no scores of 'trak' to remove"):
        removal_jobs(config, replace(settings, methods=("trak",)), evidence, tmp_path)
    path = retrain(config, dataset, jobs[3])
    assert model_facts(path)["removed"]["about"] == 0


def test_disjoint_parts_share_no_picture_and_grow(config, dataset, tmp_path):
    """Each part holds the smaller ones of its side; all train for as many steps."""
    settings = DisjointConfig(shares=(1 / 8, 1 / 4, 1 / 2))
    jobs = disjoint_jobs(config, settings, len(dataset), tmp_path)
    pairs = [(a.kept, b.kept) for a, b in zip(jobs[::2], jobs[1::2], strict=True)]
    assert [(a.sum(), b.sum()) for a, b in pairs] == [(4, 4), (8, 8), (16, 16)]
    assert not any((a & b).any() for a, b in pairs)
    for side in (0, 1):
        for smaller, larger in zip(pairs, pairs[1:], strict=False):
            assert (larger[side] >= smaller[side]).all()
    assert {job.settings(config).train.num_steps for job in jobs} == {4}
    assert len({job.settings(config).seed for job in jobs}) == len(jobs)
    facts = model_facts(retrain(config, dataset, jobs[0]))
    assert facts["disjoint"] == {"fraction": 1 / 8, "subset": 0}
    with pytest.raises(ValueError, match="must overlap"):
        disjoint_jobs(config, DisjointConfig((0.6,)), len(dataset), tmp_path)


def test_a_model_without_a_group_is_compared_with_one_of_all(config, dataset, tmp_path):
    """A column names all its values; all begin with the same random weights."""
    names = named_groups(["label", "name=Bag"], dataset)
    column = dataset.metadata["label"].astype(str)
    values = sorted(column.unique())
    assert names == [*(f"label={value}" for value in values), "name=Bag"]
    started = replace(config, train=replace(config.train, start_from="x.safetensors"))
    controls = RemovalConfig(num_group_controls=2)
    jobs = group_jobs(config, controls, names, dataset, tmp_path)
    jobs, random = jobs[: 1 + len(names)], jobs[1 + len(names) :]
    assert jobs[0].kept.all()
    sizes = dict.fromkeys(f"{(~job.kept).mean():.2g}" for job in jobs[1:])
    wanted = [(float(size), number) for size in sizes for number in (0, 1)]
    whys = [job.why["removed"] for job in random]
    assert [(why["fraction"], why["about"]) for why in whys] == wanted
    assert {why["method"] for why in whys} == {"random"}
    for job in random:
        near = min(abs((~job.kept).sum() - (~one.kept).sum()) for one in jobs[1:])
        assert near <= 0.05 * (~job.kept).sum() + 1
    assert len({job.kept.tobytes() for job in random}) == len(random)
    np.testing.assert_array_equal(jobs[1].kept, column != values[0])
    settings = [job.settings(started) for job in jobs]
    assert {one.train.start_from for one in settings} == {""}
    settings += [job.settings(started) for job in random]
    assert len({one.seed for one in settings}) == 1
    assert settings[0].train.num_steps == 8
    assert settings[1].train.num_steps == round(8 * jobs[1].kept.mean())
    facts = model_facts(retrain(config, dataset, jobs[1]))
    assert facts["removed"]["method"] == names[0] and facts["removed"]["about"] == -1
    for wrong, said in (("house", "no column 'house'"), ("name=Hat", "has 'Hat'")):
        with pytest.raises(LookupError, match=said):
            named_groups([wrong], dataset)
    alike = replace(dataset, metadata=dataset.metadata.assign(name="Bag"))
    with pytest.raises(ValueError, match="Every image is in 'name=Bag'"):
        group_jobs(config, controls, ["name=Bag"], alike, tmp_path)


def test_models_without_groups_are_kept_beside_the_collection(
    config, dataset, tmp_path
):
    """What the app asks; without that of every image where that is the full one."""
    for common in (False, True):
        settings = tiny_config(common_draws=common)
        root, folder = tmp_path / f"root-{common}", tmp_path / f"work-{common}"
        few = RemovalConfig(num_group_controls=1)
        jobs = group_jobs(settings, few, ["name=Bag"], dataset, folder)
        paths = retrain_jobs(settings, dataset, jobs)
        keep_twins(root, settings, paths)
        twins = find_twins(twins_folder(root, settings))
        groups = ["name=Bag", "random"] + ["none"] * (not common)
        assert [twin.group for twin in twins] == groups
        share = 1 - jobs[1].kept.mean()
        assert twins[0].share == pytest.approx(share) and nulls_of(twins[0], twins)
        assert twins[0].path.read_bytes() == jobs[1].path.read_bytes()
