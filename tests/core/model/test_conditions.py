"""Two conditions with an embedding each: labels, drops, guidance, held-out pairs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from core.checks import check_settings
from core.data.datasets import complete_only, held_out_classes, load_dataset
from core.measure.draws import Augmentation, drop_codes, keyed_generator, make_draws
from core.model.checkpoint import denoiser_from_bytes, denoiser_to_bytes
from core.model.conditions import SummedEmbedding, label_of, label_rows
from core.model.patch_autoencoder import PatchAutoencoder, border_mixing, lapping
from core.presets import collection_config
from precompute.stages.samples import pair_labels
from precompute.stages.train import column_sizes, new_denoiser
from tests.helpers.toys import tiny_denoiser

SIZES = (2, 3)


def test_labels_count_classes_then_none_then_parts():
    """Classes are numbered as the data set numbers them; each label is its own row."""
    rows = label_rows(SIZES)
    assert rows[:7] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 3)]
    assert sorted(rows) == [(a, b) for a in range(3) for b in range(4)]
    assert label_of(SIZES, (1, 2)) == 5 and label_of(SIZES, (None, None)) == 6
    assert rows[label_of(SIZES, (None, 1))] == (2, 1)


def test_an_embedding_is_the_sum_of_its_parts():
    """What one column adds does not depend on the other, an open one included."""
    embedding = SummedEmbedding(SIZES, 5)
    houses, concepts = embedding.tables
    for label, (house, concept) in enumerate(label_rows(SIZES)):
        wanted = houses.weight[house] + concepts.weight[concept]
        torch.testing.assert_close(embedding(torch.tensor([label]))[0], wanted)
    labels = torch.full((4,), label_of(SIZES, (1, 2)))
    dropped = embedding.dropped(labels, torch.arange(4))
    wanted = [(1, 2), (None, None), (None, 2), (1, None)]
    assert dropped.tolist() == [label_of(SIZES, values) for values in wanted]


def test_a_model_of_two_conditions_survives_its_file_and_keeps_labels_apart():
    """The file alone gives the same predictions, for labels that leave a part open."""
    denoiser = tiny_denoiser(num_classes=SIZES, label_dropout=0.1).float()
    read = denoiser_from_bytes(denoiser_to_bytes(denoiser, None))
    assert read.null_label == 6 and read.conditions.sizes == SIZES
    x_t = torch.randn(1, *denoiser.shape, generator=keyed_generator(0, "x"))
    x_t, timesteps = x_t.expand(12, -1, -1, -1), torch.full((12,), 5)
    with torch.no_grad():
        first, second = (
            model.predict(x_t, timesteps, torch.arange(12))
            for model in (denoiser, read)
        )
    torch.testing.assert_close(first, second)
    distance = torch.cdist(first.flatten(1), first.flatten(1)) + torch.eye(12)
    assert distance.min() > 1e-4


def test_guidance_leads_away_from_the_null_label():
    """By three times the difference between the two outputs."""
    denoiser = tiny_denoiser(num_classes=SIZES, label_dropout=0.1).float()
    x_t = torch.randn(1, *denoiser.shape, generator=keyed_generator(0, "x"))
    t, label = torch.tensor([5]), torch.tensor([label_of(SIZES, (1, 2))])
    with torch.no_grad():
        plain = denoiser.predict(x_t, t, label)
        nobody = denoiser.predict(x_t, t, torch.tensor([6]))
        found = denoiser.guided(x_t, t, label, 3.0)
    torch.testing.assert_close(found, nobody + 3 * (plain - nobody))


def test_drops_come_as_often_as_asked():
    """Exactly at equally spaced numbers; in draws of a gradient to one in each kind."""
    shares = (0.1, 0.05, 0.15)
    codes = drop_codes((torch.arange(1000) + 0.5) / 1000, shares)
    assert torch.bincount(codes).tolist() == [700, 100, 50, 150]
    alone = drop_codes(torch.tensor([0.05, 0.2]), (0.1,))
    assert alone.dtype == torch.bool and alone.tolist() == [True, False]
    counts = torch.stack([
        torch.bincount(
            make_draws(
                400, (1, 2, 2), 20, keyed_generator(seed, "d"), Augmentation(shares)
            ).drop_label,
            minlength=4,
        )
        for seed in range(20)
    ]).double()
    wanted = torch.tensor([280.0, 40.0, 20.0, 60.0]).double()
    assert ((counts - wanted).abs() <= 4).all()  # pairs of equal draws, two at most
    torch.testing.assert_close(counts.mean(0), wanted, rtol=0, atol=1.0)


def test_a_limit_keeps_whole_concepts_where_all_houses_are_wanted():
    config = collection_config("glyphs-pairs", "tiny").data
    few = load_dataset(replace(config, limit=11, held_out=0.0))
    assert len(few) == 8 and len(few.class_names) == 8
    assert (few.metadata.groupby("name")["style"].nunique() == 4).all()
    every = load_dataset(replace(config, limit=None, held_out=0.0))
    first = every.metadata["name"].drop_duplicates()[:2]
    assert set(few.metadata["name"]) == set(first)


def test_glyphs_pairs_hold_out_a_tenth_and_keep_three_houses():
    """218 concepts that all four houses drew; 87 pairs are never shown."""
    config = collection_config("glyphs-pairs")
    dataset = load_dataset(config.data)
    every = load_dataset(replace(config.data, held_out=0.0))
    assert (len(every), len(dataset), len(dataset.held_out)) == (872, 785, 87)
    assert dataset.class_names == every.class_names
    assert not set(dataset.labels.tolist()) & set(dataset.held_out)
    houses = dataset.metadata.groupby("name")["style"].nunique()
    assert len(houses) == 218 and set(houses) == {3, 4}
    lost = pd.Series([dataset.class_names[i][0] for i in dataset.held_out])
    assert set(lost.value_counts()) == {21, 22}
    assert set(every.metadata.groupby("name")["style"].nunique()) == {4}


def test_only_what_all_drew_is_complete():
    """A value of the last column that lacks one of the first goes."""
    table = pd.DataFrame({
        "house": ["a", "b", "a", "b", "b"],
        "concept": ["cat", "cat", "dog", "fox", "fox"],
    })
    assert complete_only(table, ("house", "concept"))["concept"].tolist() == ["cat"] * 2


def test_too_many_held_out_pairs_are_refused():
    """The message says how many there can be."""
    names = tuple((a, b) for a in "xyz" for b in "cd")
    assert len(held_out_classes(names, 1 / 3)) == 2
    with pytest.raises(ValueError, match=r"data.held_out is 0.5: 3 of 6 classes.*0.33"):
        held_out_classes(names, 0.5)
    with pytest.raises(ValueError, match="two label columns"):
        held_out_classes((("x",), ("y",)), 0.5)


@pytest.mark.parametrize(
    ("stage", "wrong", "said"),
    [
        ("model", {"part_dropout": (0.1,)}, "has 1 numbers, `data.label_columns` 2"),
        ("model", {"label_dropout": 0.9}, "add up to 1. Expected: less than 1"),
        ("model", {"patch_size": 2, "latent_channels": 4}, "even side from 4 on"),
        ("data", {"label_columns": ("name",)}, "cannot be 0.1 with 1 label columns"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(stage, wrong, said):
    """One sentence names the settings and their values."""
    config = collection_config("glyphs-pairs")
    check_settings(config)
    changed = {stage: replace(getattr(config, stage), **wrong)}
    if stage == "data":
        changed["model"] = replace(config.model, part_dropout=())
    with pytest.raises(ValueError, match=said):
        check_settings(replace(config, **changed))


def test_columns_of_which_pairs_are_missing_are_refused():
    """Their labels would be numbered otherwise than the model's."""
    assert column_sizes((("a", "x"), ("a", "y"))) == (1, 2)
    with pytest.raises(ValueError, match="2 x 2 values, and 3 combinations occur"):
        column_sizes((("a", "x"), ("a", "y"), ("b", "x")))


def test_held_out_pairs_are_classes_of_the_model():
    """The model has an embedding for each house and concept, and knows every pair."""
    config = collection_config("glyphs-pairs", "tiny")
    config = replace(config, data=replace(config.data, limit=None))
    dataset = load_dataset(config.data)
    denoiser = new_denoiser(config, dataset)
    assert denoiser.conditions.sizes == (4, 218) and denoiser.null_label == 872
    rows = np.array(label_rows((4, 218)))[: len(dataset.class_names)]
    houses = sorted({house for house, _ in dataset.class_names})
    assert [houses[row[0]] for row in rows] == [n[0] for n in dataset.class_names]


def test_every_other_gallery_image_is_of_a_pair_that_training_never_saw():
    """The list is fixed: more samples begin with the same ones, none comes twice."""
    labels, held_out = np.array([0, 0, 1, 3, 5, 6]), (2, 4, 7)
    found = pair_labels(6, labels, held_out)
    assert sorted(found[1::2]) == [2, 4, 7]
    assert len(set(found[::2])) == 3 and set(found[::2]) <= set(labels.tolist())
    assert pair_labels(4, labels, held_out) == found[:4]


@pytest.mark.parametrize("width", [4, 8])
def test_mixing_borders_is_orthogonal_and_keeps_constants(width):
    """So noise stays noise of one size, and a plain background stays plain."""
    matrix = border_mixing(width)
    eye = torch.eye(width, dtype=torch.float64)
    torch.testing.assert_close(matrix @ matrix.T, eye)
    torch.testing.assert_close(matrix.sum(1), eye.sum(1))
    whole = lapping(4 * width, width)
    torch.testing.assert_close(whole @ whole.T, torch.eye(4 * width).double())
    inside = slice(width // 2, -(width // 2))
    assert (whole[0] == torch.eye(4 * width)[0]).all()  # the outer border stays
    assert not torch.equal(whole[inside, inside], torch.eye(3 * width).double())


def test_overlapping_patches_are_exact_linear_and_show_less_grid():
    """All components give the image back; few give it back better, without a grid."""
    g = keyed_generator(0, "smooth")
    images = torch.randn(64, 3, 32, 32, generator=g).cumsum(2).cumsum(3)
    images = images - images.mean((2, 3), keepdim=True)
    images = 0.5 * images / images.abs().amax((1, 2, 3), keepdim=True)
    full = PatchAutoencoder(3, 4, 48, True).fit(images)
    torch.testing.assert_close(
        full.decode(full.encode(images)), images, rtol=0, atol=1e-5
    )
    few = {lap: PatchAutoencoder(3, 4, 8, lap).fit(images) for lap in (False, True)}
    a, b = images[:1], images[1:2]
    mean = few[True].encode((a + b) / 2)
    parts = (few[True].encode(a) + few[True].encode(b)) / 2
    torch.testing.assert_close(mean, parts, rtol=0, atol=1e-5)
    jumps = {}
    for lap, autoencoder in few.items():
        wrong = autoencoder.decode(autoencoder.encode(images)) - images
        step = wrong.diff(dim=-1).square().mean((0, 1, 2))
        jumps[lap] = float(step[3::4].mean()), float(wrong.square().mean())
    assert jumps[True][0] < 0.75 * jumps[False][0]
    assert jumps[True][1] < jumps[False][1]
    with pytest.raises(ValueError, match="Patches of 3 pixels cannot overlap"):
        PatchAutoencoder(3, 3, 8, True).fit(images[..., :30, :30])


def test_lapped_patches_survive_the_model_file():
    """The autoencoder comes back with its overlap."""
    config = collection_config("glyphs-pairs", "tiny")
    dataset = load_dataset(config.data)
    denoiser = new_denoiser(config, dataset)
    read = denoiser_from_bytes(denoiser_to_bytes(denoiser))
    x_0 = denoiser.encode(dataset.images())
    torch.testing.assert_close(read.encode(dataset.images()), x_0)
    assert read.autoencoder.lapped
