"""Text-to-image models and LoRA: against diffusers' pipeline, loops, dense matrices."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from curvlinops import EKFACLinearOperator, KFACLinearOperator
from diffusers import DDPMScheduler, StableDiffusionPipeline
from torch import nn

from core.curvature.fit import fit_factors
from core.data.datasets import load_dataset
from core.data.sources import find_source
from core.drawing import Drawing
from core.explorer.explorer import Lens, open_explorer
from core.measure.costs import loss
from core.measure.draws import Augmentation, make_draws
from core.measure.gradients import fold_gradients
from core.model.checkpoint import denoiser_from_bytes, denoiser_to_bytes
from core.model.lora import low_rank_layers
from core.model.model_folders import SavedModel
from core.model.parameters import (
    attributed_parameters,
    flatten_gradients,
    parameter_layout,
)
from core.model.pipelines import output_bytes, read_pipeline
from core.recipes import named_config
from precompute.imports.selection import Prompts, Selection
from precompute.stages import publish as assemble
from tests.benchmarks.stable_diffusion import kept_bytes
from tests.core.curvature.test_curvature import Flattened, fit
from tests.helpers import layouts
from tests.helpers.exact import dense_ggn, loop_gradient
from tests.helpers.stable_diffusion import (
    ATTENTION,
    CAPTIONS,
    TOKENS,
    drawings,
    save_diffusers_lora,
    save_kohya_lora,
    save_peft_lora,
    save_pipeline,
    text_unet,
)
from tests.helpers.toys import exact_samples, random_samples
from tests.precompute.test_own import run

KINDS = ("none", "peft", "convolutions", "kohya", "diffusers", "texts too")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict:
    """Return the folder of a pipeline, and of LoRAs by kind."""
    folder = tmp_path_factory.mktemp("saved")
    model = save_pipeline(folder)
    layers = [*ATTENTION, "conv1", "conv_in"]
    return {
        "model": model,
        "none": None,
        "peft": save_peft_lora(folder / "peft", model, lora_alpha=8),
        "convolutions": save_peft_lora(
            folder / "convolutions", model, target_modules=layers, use_rslora=True
        ),
        "kohya": save_kohya_lora(folder / "kohya", model),
        "diffusers": save_diffusers_lora(folder / "diffusers", model),
        "texts too": save_diffusers_lora(folder / "texts", model, texts=True),
    }


def adapted(saved, kind: str = "peft", dtype=torch.float64):
    """Return a denoiser in a floating point type."""
    denoiser = read_pipeline(SavedModel(saved["model"], saved[kind]), CAPTIONS)
    return denoiser.to(dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_those_of_the_pipeline_s_own_unet(kind, saved):
    """With its text encoder, its LoRA, and its way of writing a text in tokens."""
    pipeline = StableDiffusionPipeline.from_pretrained(
        saved["model"], safety_checker=None
    )
    if kind in ("kohya", "diffusers", "texts too"):
        pipeline.load_lora_weights(saved[kind])
    elif kind != "none":
        from peft import PeftModel

        pipeline.unet = PeftModel.from_pretrained(pipeline.unet, saved[kind]).eval()
    denoiser = adapted(saved, kind, torch.float32)
    x_t = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    timesteps = torch.tensor([0, 100, 500, 999])
    with torch.no_grad():
        texts, empty = pipeline.encode_prompt(
            list(CAPTIONS), "cpu", 1, True, [""] * len(CAPTIONS)
        )
        texts = torch.cat([texts, empty[:1]])
        expected = pipeline.unet(x_t, timesteps, encoder_hidden_states=texts).sample
        found = denoiser.predict(x_t, timesteps, torch.arange(4))
    assert denoiser.null_label == 3 and texts.shape == (4, TOKENS, 16)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found[0], found[1])


def test_scales_are_those_of_the_file(saved):
    """Alpha over the rank, or over its root where the settings say so."""
    scales = {
        kind: {layer.scale for layer in low_rank_layers(adapted(saved, kind)).values()}
        for kind in KINDS[1:]
    }
    assert scales == {
        "peft": {8 / 2},
        "convolutions": {2 / 2**0.5},
        "kohya": {3 / 2},
        "diffusers": {1.0},
        "texts too": {1.0},
    }


def test_a_lora_and_its_texts_change_predictions(saved):
    """Or the test above would compare nothing with nothing."""
    x_t, timesteps = torch.ones(1, 4, 8, 8), torch.tensor([500])
    outputs = []
    for kind in KINDS:
        with torch.no_grad():
            denoiser = adapted(saved, kind, torch.float32)
            outputs.append(denoiser.predict(x_t, timesteps, torch.tensor([1])))
    for i, one in enumerate(outputs):
        for other in outputs[:i]:
            assert (one - other).abs().max() > 1e-4


def test_the_schedule_is_the_one_of_training(saved):
    """Scaled linear betas and no clipping, whatever the sampler of the pipeline."""
    denoiser = adapted(saved, "none")
    expected = DDPMScheduler(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012
    )
    torch.testing.assert_close(
        denoiser.alphas_cumprod, expected.alphas_cumprod.double()
    )
    assert denoiser.scheduler.config.clip_sample is False


@pytest.mark.parametrize("kind", ["peft", "convolutions"])
def test_only_the_lora_counts(kind, saved):
    """Two small layers for each that it adapts, in the sizes that follow from it."""
    denoiser = adapted(saved, kind)
    plain = adapted(saved, "none").unet
    layout = parameter_layout(denoiser.unet)
    names = {layer.name.rsplit(".", 1)[0] for layer in layout.layers}
    assert names == set(low_rank_layers(denoiser.unet)) and len(names) >= 16
    assert len(layout.layers) == 2 * len(names)
    expected = 0
    for name in names:
        d_out, d_in = plain.get_submodule(name).weight.flatten(1).shape
        expected += 2 * (d_out + d_in)  # a rank of 2
    assert layout.num_params == expected
    trained = [p for p in denoiser.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trained) == expected
    assert all(p.requires_grad for p in attributed_parameters(denoiser.unet, layout))


@pytest.mark.parametrize("kind", ["peft", "convolutions"])
def test_gradients_equal_a_loop_of_autograd(kind, saved):
    """Over the LoRA's weights, one draw at a time, the loss written out by hand.

    The passes hold three draws at most, as those of a large model do.
    """
    denoiser = adapted(saved, kind)
    denoiser.most_at_once = 3
    layout = parameter_layout(denoiser.unet)
    g = torch.Generator().manual_seed(1)
    x_0 = torch.randn(4, 8, 8, generator=g).double()
    draws = make_draws(8, denoiser.shape, 1000, g, Augmentation(0.3), num_folds=2)
    draws.__dict__["noise"] = draws.noise.double()
    found, _ = fold_gradients(loss, denoiser, layout, x_0, 1, draws, 2)

    def costs(fold):
        for i in range(4 * fold, 4 * fold + 4):
            alpha = denoiser.alphas_cumprod[draws.timesteps[i]]
            x_t = alpha.sqrt() * x_0 + (1 - alpha).sqrt() * draws.noise[i]
            text = denoiser.unet.table[3 if draws.drop_label[i] else 1]
            predicted = denoiser.unet.unet(
                x_t[None], draws.timesteps[i], encoder_hidden_states=text[None]
            ).sample
            yield draws.weights[i] * (predicted[0] - draws.noise[i]).square().sum()

    assert draws.drop_label.any() and not draws.drop_label.all()
    for fold in range(2):
        expected = loop_gradient(lambda f=fold: list(costs(f)), denoiser, layout)
        torch.testing.assert_close(found[fold].double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["peft", "convolutions"])
def test_corrected_eigenvalues_are_the_ggn_diagonal_in_the_eigenbasis(kind, saved):
    """Of the LoRA's own layers, cross-attention to the tokens of a text included."""
    denoiser = small(saved, kind)
    samples = random_samples(denoiser, 2)
    layout = parameter_layout(denoiser.unet)
    ggn = dense_ggn(denoiser, layout, samples)
    _, ekfac = fit(denoiser, exact_samples(denoiser, samples))
    rotated = ekfac.basis.rotate(ekfac.basis.rotate(ggn).T)
    torch.testing.assert_close(
        ekfac.eigenvalues, rotated.diagonal(), rtol=1e-7, atol=1e-8
    )


def small(saved, kind: str):
    """Return a denoiser whose noisy examples have 16 numbers, for dense matrices."""
    denoiser = adapted(saved, kind)
    denoiser.unet.unet.register_to_config(sample_size=2)
    return denoiser


@pytest.mark.parametrize("kind", ["peft", "convolutions"])
@pytest.mark.parametrize("operator", [KFACLinearOperator, EKFACLinearOperator])
def test_products_equal_curvlinops(operator, kind, saved):
    """K-FAC and EK-FAC of the LoRA's layers."""
    denoiser = small(saved, kind)
    samples = random_samples(denoiser, 3)
    layout = parameter_layout(denoiser.unet)
    packed = torch.cat(
        [samples.x_t.flatten(1), samples.timesteps[:, None], samples.labels[:, None]], 1
    )
    parameters = attributed_parameters(denoiser.unet, layout)
    reference = operator(
        Flattened(denoiser),
        nn.MSELoss(reduction="sum"),
        parameters,
        [(packed, torch.zeros(3, 16, dtype=torch.float64))],
        fisher_type="type-2",
        separate_weight_and_bias=False,
        check_deterministic=False,
    )
    kfac, ekfac = fit(denoiser, exact_samples(denoiser, samples))
    ours = ekfac if operator is EKFACLinearOperator else kfac
    g = torch.Generator().manual_seed(0)
    vector = [torch.randn(p.shape, generator=g).double() for p in parameters]
    expected = flatten_gradients(reference @ vector, layout) / len(packed)
    found = ours.multiply(flatten_gradients(vector, layout))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_the_factor_of_a_text_layer_is_the_second_moment_of_its_tokens(saved):
    """What cross-attention's keys are made from needs no model to be known."""
    denoiser = adapted(saved)
    samples = random_samples(denoiser, 6)
    layout = parameter_layout(denoiser.unet)
    factors = fit_factors(denoiser, layout, [samples])
    tokens = denoiser.unet.table[samples.labels].flatten(0, 1)  # (6 L, D)
    expected = tokens.T @ tokens / len(tokens)
    names = [layer.name for layer in layout.layers]
    found = [i for i, name in enumerate(names) if name.endswith("attn2.to_k.down")]
    assert len(found) == 4  # one a block
    for i in found:
        torch.testing.assert_close(factors.input_covariance[i], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_hold_every_prediction_exactly(kind, saved):
    """Captions and the frozen rest too; half precision only where it loses nothing."""
    denoiser = adapted(saved, kind, torch.float32)
    with torch.no_grad():  # as most models are passed around
        for name, parameter in denoiser.unet.named_parameters():
            if "conv" in name:
                parameter.copy_(parameter.half())
    data = denoiser_to_bytes(denoiser, None)
    again = denoiser_from_bytes(data)
    x_t, t = torch.randn(4, 4, 8, 8), torch.tensor([0, 100, 500, 999])
    with torch.no_grad():
        assert torch.equal(
            again.predict(x_t, t, torch.arange(4)),
            denoiser.predict(x_t, t, torch.arange(4)),
        )
    assert again.unet.captions == CAPTIONS and again.null_label == 3
    assert parameter_layout(again.unet) == parameter_layout(denoiser.unet)
    assert again.most_at_once == denoiser.most_at_once
    assert len(data) < 0.9 * len(denoiser_to_bytes(denoiser, torch.float32))
    assert denoiser_to_bytes(again, None) == data


def test_what_a_pass_keeps_is_about_what_the_layers_put_out():
    """Counted by autograd itself on a real pass; the estimate is from shapes alone."""
    unet = text_unet()
    x_t, texts = torch.randn(1, 4, 8, 8), torch.randn(1, 77, 16)
    kept = kept_bytes(lambda: unet(x_t, 5, encoder_hidden_states=texts).sample, unet)
    assert 0.6 < output_bytes(unet.config) / kept < 1.6, kept


def changed(file, **changes):
    """Change settings in a saved file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def unet_settings(**changes):
    """Return what changes the settings of a pipeline's UNet."""
    return lambda folder: changed(folder / "unet/config.json", **changes)


WRONG_MODELS = {
    "sdxl": (unet_settings(addition_embed_type="text_time"), "second text (as SDXL)"),
    "inpainting": (unet_settings(in_channels=9), "as for inpainting"),
    "picture": (
        unet_settings(encoder_hid_dim_type="image_proj"),
        "an embedded image",
    ),
    "classes": (unet_settings(num_class_embeds=3), "conditional on a class"),
    "controlnet": (lambda f: (f / "controlnet").mkdir(), "by a ControlNet"),
    "flux": (lambda f: (f / "transformer").mkdir(), "diffusion transformer"),
    "other unet": (
        unet_settings(_class_name="UNet3DConditionModel"),
        "is a UNet3DCond",
    ),
    "no tokenizer": (lambda f: shutil.rmtree(f / "tokenizer"), "no 'tokenizer' folder"),
    "no encoder": (
        lambda f: shutil.rmtree(f / "text_encoder"),
        "no 'text_encoder' folder",
    ),
    "other encoder": (
        lambda f: text_unet(cross_attention_dim=8).save_pretrained(f / "unet"),
        "gives 16 numbers a token and the model takes 8",
    ),
}


@pytest.mark.parametrize("spoil, said", WRONG_MODELS.values(), ids=WRONG_MODELS.keys())
def test_what_cannot_be_attributed_is_refused_in_a_sentence(
    spoil, said, saved, tmp_path
):
    shutil.copytree(saved["model"], tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(ValueError, match="^[^\n]*$") as found:
        read_pipeline(SavedModel(tmp_path / "model"))
    assert said in str(found.value)


TOY = """
    curvature.factor_draws=1 curvature.eigenvalue_draws=1
    gradients.num_draws=4 gradients.sketch_dim=1024 gradients.slice_examples=4
    samples.num_samples=4 samples.num_steps=2 samples.num_draws=8
    model.label_dropout=0.25
""".split()


def test_from_a_folder_of_drawings_and_a_lora_to_answers_with_two_commands(
    saved, tmp_path, monkeypatch, capsys
):
    """Import, then build; the gallery knows its captions, and a new one is drawn.

    The model is put beside the collection, as a large one is.
    """
    monkeypatch.setenv("AFTERIMAGE_SETS", str(tmp_path / "sets"))
    monkeypatch.setattr(assemble, "LARGEST_INSIDE", 0)
    root, work = tmp_path / "root", tmp_path / "work"
    data = drawings(tmp_path / "in", "table")
    changes = [part for change in TOY for part in ("--set", change)]
    own = ["--collection", "own", "--data", data, "--lora", saved["diffusers"]]
    own += ["--limit", 8]
    assert run(monkeypatch, "import-model", saved["model"], *own, *changes) == 0
    said = capsys.readouterr().out
    assert "UNet2DConditionModel, text to image, in 4x8x8 latents" in said
    num_params = parameter_layout(adapted(saved, "diffusers").unet).num_params
    assert "LoRA: rank 2 around 32 layers" in said
    assert f"attributed: {num_params:,} weights of 64 Linear" in said
    assert (
        "captions: 4 different; images without one, taken with the empty text: 1"
        in said
    )
    config = named_config("own")
    assert config.data.label_columns == ("caption",)
    assert config.captions[0] == "caption" and config.samples.guidance_scale == 7.5

    where = ["--root", root, "--work", work]
    assert run(monkeypatch, "plan", "--collection", "own", *where) == 0
    assert "in all" in capsys.readouterr().out
    assert run(monkeypatch, "build", "--collection", "own", *where) == 0
    explorer = open_explorer("own", root)
    assert explorer.classes["caption"].tolist() == sorted(["", *CAPTIONS])
    drawn = map(explorer.class_words, explorer.gallery["label"])
    assert sorted(drawn) == sorted(["(empty)", *CAPTIONS])
    gallery = explorer.query_from_gallery(int(explorer.gallery.index[0]))
    drawn = explorer.generate(Drawing(2, 5, "ddim", 3, 7.5))
    for query in (gallery, drawn):
        answer = explorer.answer(query, Lens())
        assert np.isfinite(answer.scores).all() and answer.scores.std() > 0
    other = explorer.generate(Drawing(1, 5, "ddim", 3, 7.5))
    assert not np.array_equal(other.pixels, drawn.pixels)  # another text
    explorer.close()
    (model,) = root.glob("own-model-*.safetensors")
    model.rename(tmp_path / "elsewhere")
    explorer = open_explorer("own", root)
    with pytest.raises(LookupError, match="'own-model-.*' is not beside .*tion own`"):
        explorer.generate(Drawing(2, 5, "ddim", 3, 7.5))
    explorer.close()

    few = ["--set", "data.limit=2"]  # other captions than the model was told
    assert run(monkeypatch, "build", "--collection", "own", *where, *few) == 1
    assert "Import it again" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["files", "none"])
def test_texts_come_from_files_beside_or_are_the_same_for_all(
    kind, saved, tmp_path, monkeypatch, capsys
):
    """As LoRA trainers write them; what has none gets the one that is given."""
    monkeypatch.setenv("AFTERIMAGE_SETS", str(tmp_path / "sets"))
    data = drawings(tmp_path / "in", kind)
    own = ["--collection", "own", "--data", data, "--prompt", "a square"]
    assert run(monkeypatch, "import-model", saved["model"], *own) == 0
    dataset = load_dataset(named_config("own").data)
    expected = {"a square"} | (set(CAPTIONS) if kind == "files" else set())
    assert {names for (names,) in dataset.class_names} == expected
    if kind == "none":
        own[3] = layouts.image_folder(tmp_path / "other")
        assert run(monkeypatch, "import-model", saved["model"], *own[:4]) == 1
        assert "no image has a 'caption' or 'text'" in capsys.readouterr().err


def test_a_named_column_holds_the_texts(tmp_path):
    """And no other is asked, for want of which it would be taken."""
    root = drawings(tmp_path / "in", "table")
    records = find_source(root)
    chosen = Selection(prompts=Prompts("label", "nothing"))
    texts = [record.facts["caption"] for record in chosen.records(records)]
    assert set(texts) == set(layouts.training_pictures()[1])
    chosen = replace(chosen, prompts=Prompts("artist"))
    with pytest.raises(ValueError, match="no image has a 'artist'; there are: "):
        list(chosen.records(records))
