"""Laws of the CLIP embeddings, of their training, and of the model that ships."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from core.config import DataConfig
from core.data.datasets import Dataset, load_dataset
from core.engine.clip import (
    GLYPHS_CLIP_NAME,
    GLYPHS_CLIP_PATH,
    clip_similarity,
    clip_to_bytes,
    load_clip,
    new_clip,
    small_tokenizer,
)
from precompute.stages.clip import (
    GLYPHS_CLIP_CONFIG,
    ClipTraining,
    augment,
    contrastive_loss,
    embed_examples,
    train_clip,
    true_pairs,
)

TINY_CONFIG = {
    "model_cfg": {
        "embed_dim": 8,
        "vision_cfg": {
            "image_size": 32,
            "layers": [1, 1, 1, 1],
            "width": 4,
            "head_width": 64,
        },
        "text_cfg": {
            "context_length": 20,
            "vocab_size": 600,
            "width": 8,
            "heads": 2,
            "layers": 1,
        },
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def noise_pictures(count: int, channels: int = 3, size: int = 32) -> np.ndarray:
    shape = (count, channels, size, size)
    return torch.randint(256, shape, generator=generator()).to(torch.uint8).numpy()


@pytest.fixture(scope="module")
def tiny_clip():
    return new_clip(TINY_CONFIG, "tiny", generator())


@pytest.fixture(scope="module")
def glyphs_clip():
    return load_clip()


@pytest.fixture(scope="module")
def animals() -> Dataset:
    """Return every house's animals."""
    return load_dataset(DataConfig(keep=(("group", ("Animals & Nature",)),)))


def test_embedding_does_not_depend_on_batch_size(tiny_clip):
    """An image or text has one embedding, whatever is embedded beside it."""
    pixels, texts = noise_pictures(7), ["fox", "a red fox", "bear", "sun", "tea"]
    np.testing.assert_allclose(
        tiny_clip.embed_images(pixels, batch_size=3),
        tiny_clip.embed_images(pixels),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        tiny_clip.embed_texts(texts, batch_size=1),
        tiny_clip.embed_texts(texts),
        atol=1e-6,
    )


def test_embeddings_have_unit_norm(tiny_clip):
    """Every embedding is a direction."""
    for embeddings in (
        tiny_clip.embed_images(noise_pictures(4)),
        tiny_clip.embed_texts(["fox", "tea"]),
    ):
        np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


def test_grey_picture_is_embedded_as_the_same_picture_in_rgb(tiny_clip):
    """A grey image means the colour image with three equal channels."""
    grey = noise_pictures(3, channels=1)
    np.testing.assert_array_equal(
        tiny_clip.embed_images(grey),
        tiny_clip.embed_images(grey.repeat(3, axis=1)),
    )


def test_enlarged_picture_keeps_its_embedding(glyphs_clip, animals):
    """An image of another size is resized, so twice the pixels change little."""
    small = animals.pixels[:20]
    large = small.repeat(2, axis=2).repeat(2, axis=3)
    cosines = clip_similarity(
        glyphs_clip.embed_images(small), glyphs_clip.embed_images(large)
    )
    assert (cosines.argmax(1) == np.arange(20)).all(), cosines.diagonal()
    assert cosines.diagonal().min() > 0.9, cosines.diagonal()


def test_saved_model_is_the_model(tiny_clip, tmp_path):
    """Saving in full precision and loading changes neither name nor any embedding."""
    path = tmp_path / "tiny.safetensors"
    path.write_bytes(clip_to_bytes(tiny_clip, torch.float32))
    loaded = load_clip(path)
    assert (loaded.name, loaded.config) == (tiny_clip.name, tiny_clip.config)
    pixels = noise_pictures(3)
    np.testing.assert_array_equal(
        loaded.embed_images(pixels), tiny_clip.embed_images(pixels)
    )
    np.testing.assert_array_equal(
        loaded.embed_texts(["fox"]), tiny_clip.embed_texts(["fox"])
    )


def test_half_precision_file_keeps_embeddings_to_a_thousandth(tiny_clip, tmp_path):
    """The fp16 file that ships is as good as the weights that were trained."""
    path = tmp_path / "tiny.safetensors"
    path.write_bytes(clip_to_bytes(tiny_clip))
    pixels = noise_pictures(3)
    cosines = (
        load_clip(path).embed_images(pixels) * tiny_clip.embed_images(pixels)
    ).sum(1)
    assert (cosines > 0.999).all(), cosines


def test_making_a_model_leaves_global_randomness_alone():
    """Nobody's random numbers change because a CLIP model was made."""
    before = torch.random.get_rng_state()
    new_clip(TINY_CONFIG, "tiny", generator())
    assert torch.equal(before, torch.random.get_rng_state())


def test_every_text_has_tokens_of_the_small_vocabulary():
    """Words that were merged away fall into pieces that exist."""
    text_config = GLYPHS_CLIP_CONFIG["model_cfg"]["text_cfg"]
    tokenizer = small_tokenizer(text_config)
    tokens = tokenizer(["fox", "pterodactyl", "Füchslein 🦊", ""])
    assert tokens.max() == text_config["vocab_size"] - 1 == tokenizer.eot_token_id
    assert tokenizer.decode(tokenizer.encode("pterodactyl")) == "pterodactyl "


def test_similarity_is_the_cosine_by_hand():
    """(3, 4) lies at cosine 3/5 to the first axis, and opposite to (-3, -4)."""
    query = np.array([[3.0, 4.0]])
    embeddings = np.array([[2.0, 0.0], [0.0, 1.0], [-3.0, -4.0], [30.0, 40.0]])
    np.testing.assert_allclose(
        clip_similarity(query, embeddings), [[0.6, 0.8, -1.0, 1.0]], rtol=1e-6
    )


def test_every_picture_is_most_similar_to_itself(tiny_clip):
    """Self-similarity is 1, and nothing is above it."""
    embeddings = tiny_clip.embed_images(noise_pictures(9))
    cosines = clip_similarity(embeddings, embeddings)
    np.testing.assert_allclose(cosines.diagonal(), 1, atol=1e-6)
    assert (cosines.max(1) == cosines.diagonal()).all()
    assert np.abs(cosines).max() <= 1


def test_vector_without_direction_is_refused():
    """A zero or infinite embedding has no cosine, and the error says whose it is."""
    good = np.ones((3, 2))
    for bad_value in (0.0, np.nan, np.inf):
        bad = good.copy()
        bad[1] = bad_value
        with pytest.raises(
            ValueError, match="embedding of example 1 is zero or not fin"
        ):
            clip_similarity(good, bad)
        with pytest.raises(
            ValueError, match="embedding of query 1 is zero or not finite"
        ):
            clip_similarity(bad, good)
    with pytest.raises(ValueError, match="Embeddings of 2 and 5 dimensions cannot be"):
        clip_similarity(good, np.ones((3, 5)))


def test_input_that_is_no_picture_or_text_is_refused(tiny_clip):
    """Floats, four channels and nothing at all are errors, not guesses."""
    for pixels in (
        np.zeros((1, 3, 8, 8), np.float32),
        np.zeros((1, 4, 8, 8), np.uint8),
        np.zeros((0, 3, 8, 8), np.uint8),
        np.zeros((3, 8, 8), np.uint8),
    ):
        with pytest.raises(
            ValueError, match=r"Give uint8 pixels of shape \(N, C, H, W\)"
        ):
            tiny_clip.embed_images(pixels)
    with pytest.raises(ValueError, match="There is no text to embed"):
        tiny_clip.embed_texts([])


def test_bad_weights_give_a_plain_sentence(tiny_clip, tmp_path):
    """A missing, foreign or truncated file is named, with what to do."""
    with pytest.raises(
        LookupError, match="There is no CLIP model at .*none.safetensors"
    ):
        load_clip(tmp_path / "none.safetensors")
    whole = clip_to_bytes(tiny_clip)
    other = clip_to_bytes(new_clip(TINY_CONFIG, "tiny", generator()))
    for content in (
        b"",
        b"not safetensors at all",
        whole[:-100],
        other.replace(b"visual.conv1.weight", b"visual.convX.weight"),
    ):
        path = tmp_path / "bad.safetensors"
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match="'bad.safetensors' is not a CLIP model of"
        ):
            load_clip(path)


def test_loss_is_clips_own_when_each_text_is_true_of_one_picture():
    """The soft target reduces to cross entropy with the diagonal."""
    images = F.normalize(torch.randn(5, 4, generator=generator()), dim=1)
    texts = F.normalize(torch.randn(5, 4, generator=generator()) + 1, dim=1)
    scale = torch.tensor(7.0)
    logits, diagonal = scale * images @ texts.mT, torch.arange(5)
    expected = F.cross_entropy(logits, diagonal) + F.cross_entropy(logits.mT, diagonal)
    loss = contrastive_loss(images, texts, scale, torch.eye(5, dtype=torch.bool))
    torch.testing.assert_close(loss, expected / 2)


def test_text_is_true_of_every_house_that_drew_its_subject(animals):
    """Images of one subject are not each other's negatives."""
    foxes = animals.metadata[animals.metadata["name"] == "fox"]
    bear = animals.metadata[animals.metadata["name"] == "bear"].head(1)
    true = true_pairs(pd.concat([foxes.head(1), bear, foxes.tail(1)]))
    expected = [[True, False, True], [False, True, False], [True, False, True]]
    assert true.tolist() == expected


def test_augmentation_adds_white_margins_only():
    """A white image stays white, and values stay in range."""
    white = torch.ones(8, 3, 16, 16)
    assert torch.equal(augment(white, generator()), white)
    images = augment(torch.rand(8, 3, 16, 16, generator=generator()), generator())
    assert images.min() >= 0 and images.max() <= 1


def test_interrupted_training_ends_in_the_same_file(animals, tmp_path, monkeypatch):
    """A run that was killed and started again writes the same bytes."""
    few = subset(animals, 24)
    arguments = {
        "training": ClipTraining(num_steps=6, names_per_batch=4),
        "dataset": few,
        "config": TINY_CONFIG,
        "checkpoint_every": 2,
    }
    train_clip(tmp_path / "whole.safetensors", **arguments)

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("precompute.stages.clip.clip_to_bytes", kill)
        with pytest.raises(KeyboardInterrupt):
            train_clip(tmp_path / "resumed.safetensors", **arguments)
    assert list(tmp_path.glob("resumed-*.checkpoint.safetensors"))
    train_clip(tmp_path / "resumed.safetensors", **arguments)
    assert not list(tmp_path.glob("*.checkpoint.safetensors"))
    whole = (tmp_path / "whole.safetensors").read_bytes()
    assert (tmp_path / "resumed.safetensors").read_bytes() == whole


def subset(dataset: Dataset, count: int) -> Dataset:
    """Return `count` images, house after house of one subject after another."""
    order = np.lexsort((dataset.ids, dataset.metadata["name"]))[:count]
    return replace(
        dataset,
        ids=dataset.ids[order],
        pixels=dataset.pixels[order],
        labels=dataset.labels[order],
        metadata=dataset.metadata.iloc[order].reset_index(drop=True),
        encoded=(),
    )


def test_shipped_model_says_what_it_is(glyphs_clip):
    """Nobody can take the small model for a pretrained one; the file stays small."""
    assert glyphs_clip.name == GLYPHS_CLIP_NAME
    assert "small" in glyphs_clip.name
    assert glyphs_clip.config == GLYPHS_CLIP_CONFIG
    assert GLYPHS_CLIP_PATH.stat().st_size < 16_000_000


def test_shipped_model_finds_foxes_by_text(glyphs_clip, animals):
    """The word "fox" has foxes among its first 10 of 637 animals and plants."""
    embeddings = embed_examples(glyphs_clip, animals)
    similarity = clip_similarity(glyphs_clip.embed_texts(["fox"]), embeddings)[0]
    first = animals.metadata["name"].iloc[np.argsort(-similarity)[:10]]
    assert (first == "fox").sum() >= 2, first.tolist()


def text_recall(clip_model, dataset, count: int = 10) -> float:
    """Return the share of names whose text finds an image of theirs.

    Found means that one is among the `count` most similar images of the data set.
    """
    names, position = np.unique(dataset.metadata["name"], return_inverse=True)
    similarity = clip_similarity(
        clip_model.embed_texts(list(names)), embed_examples(clip_model, dataset)
    )
    first = np.argsort(-similarity, axis=1)[:, :count]
    return float((position[first] == np.arange(len(names))[:, None]).any(1).mean())


def same_subject_share(
    similarity: np.ndarray, names: np.ndarray, count: int = 3
) -> float:
    """Return the share of an image's nearest neighbours that show the same subject.

    Args:
        similarity: Of every image with every image, shape (N, N); an image's
            similarity with itself is left out.
        names: Subject of each image, shape (N,).
        count: Neighbours of each image that are looked at.

    Returns:
        The mean share, in [0, 1]; 1 needs `count` other images of every subject.
    """
    subject = pd.factorize(names)[0]
    similarity = similarity.copy()
    np.fill_diagonal(similarity, -np.inf)
    nearest = np.argpartition(-similarity, count, axis=1)[:, :count]
    return float((subject[nearest] == subject[:, None]).mean())


def test_shipped_model_finds_most_animals_by_name(glyphs_clip, animals):
    """Nine of ten names find an image of theirs among the first 10; chance is 6 %."""
    assert text_recall(glyphs_clip, animals) > 0.9


def test_shipped_model_brings_houses_together_better_than_pixels(glyphs_clip, animals):
    """Nearest images show the same subject more often than pixel neighbours do."""
    names = animals.metadata["name"].to_numpy()
    embeddings = embed_examples(glyphs_clip, animals)
    by_clip = same_subject_share(clip_similarity(embeddings, embeddings), names)
    ink = 255.0 - animals.pixels.reshape(len(animals), -1)
    by_pixels = same_subject_share(clip_similarity(ink, ink), names)
    chance = 3 / (len(animals) - 1)  # of one neighbour, with three other houses
    assert by_clip > 1.2 * by_pixels > 1.2 * chance, (by_clip, by_pixels, chance)
