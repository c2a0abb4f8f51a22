"""Files of other methods: right, resumable, and refused where they do not belong."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from core.collection.publish import CollectionWriter
from core.collection.store import Collection, find_collection
from core.config import MethodConfig, config_from_dict
from core.data.datasets import load_dataset
from core.files.tensor_files import read_tensors, write_tensors
from core.index.full import GradientIndex
from core.measure.draws import keyed_generator
from core.measure.gradients import fold_gradients
from core.measure.outputs import output_size, predict, square_norm
from core.model.build import make_denoiser
from core.model.checkpoint import denoiser_to_bytes
from core.model.parameters import parameter_layout
from core.presets import collection_config
from core.scores.baselines import datainf_damping, per_coordinate
from core.scores.method_files import (
    load_method,
    pack_features,
    read_facts,
    unpack_features,
)
from precompute.machinery.workspace import open_workspace
from precompute.stages import features, methods
from precompute.stages.curvature import fit_curvature
from precompute.stages.method_stage import MethodStage, open_stage
from precompute.stages.methods import compute_methods
from precompute.stages.publish import put_examples, put_file

SETTINGS = MethodConfig(dim=16, num_draws=4)
COUNT = 5


def small_config():
    """Return the settings of a very small collection."""
    config = collection_config("fashion2", "tiny")
    return replace(
        config,
        data=replace(config.data, limit=COUNT, image_size=8),
        model=replace(
            config.model,
            block_out_channels=(4, 4),
            attention_head_dim=2,
            norm_num_groups=2,
        ),
    )


def write_collection(root, seed=0):
    """Publish a collection of an untrained model, with an index of random numbers."""
    config = replace(small_config(), seed=seed)
    dataset, generator = load_dataset(config.data), keyed_generator(seed, "toy")
    denoiser = make_denoiser(config.model, 8, 1, 2, generator)
    with torch.no_grad():  # diffusers starts some layers at zero: give them gradients
        for parameter in denoiser.unet.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    layout = parameter_layout(denoiser.unet)
    tensors = {}
    for i, layer in enumerate(layout.layers):
        for side, size in (("input", layer.d_in), ("gradient", layer.d_out)):
            normal = torch.randn(size, size, generator=generator)
            rotation = torch.linalg.qr(normal)[0].half()
            tensors[f"{side}.{i}"] = rotation.contiguous()
    safetensors.torch.save_file(tensors, root / "vectors.safetensors")
    index = GradientIndex(root / "index", COUNT, layout.num_params)
    index.create()
    index.write(0, torch.randn(COUNT, layout.num_params, generator=generator))
    rms = torch.rand(layout.num_params, generator=generator)
    rms.numpy().tofile(root / "index" / "rms.bin")
    with CollectionWriter(root, config.name) as writer:
        writer.put_meta("settings", config.to_dict())
        put_examples(writer, dataset)
        writer.put_bytes("denoiser", denoiser_to_bytes(denoiser))
        kind = {"kind": "eigenvectors"}
        put_file(writer, root, "vectors.safetensors", kind, "<f2", 0, 0)
        for name in ("rms.bin", *index.shard_names()):
            layout_facts = {"kind": re.split("[-.]", name)[0], "bits": 8}
            put_file(writer, root, f"index/{name}", layout_facts, "|u1", 0, COUNT)
        writer.publish()
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return the folder of a small collection."""
    return write_collection(tmp_path_factory.mktemp("methods"))


def compute(root, work, *only, settings=SETTINGS):
    """Make the files of some parts."""
    return compute_methods(root, "fashion2", work, "cpu", only, settings)


def opened(root):
    """Open the collection."""
    return Collection(find_collection(root, "fashion2"))


def stage_of(root, tmp_path) -> MethodStage:
    """Open the stage."""
    return open_stage(root, "fashion2", tmp_path, "cpu", SETTINGS)


def test_features_are_projected_gradients(root, tmp_path):
    """One pass for two methods gives each its own gradient, rotated and projected."""
    compute(root, tmp_path, "d-trak", "das")
    stage = stage_of(root, tmp_path)
    draws = features.shared_draws(stage)
    x_0 = stage.denoiser.encode(stage.dataset.images())
    with opened(root) as collection:
        for name, output in (("d-trak", square_norm), ("das", output_size)):
            file = load_method(collection, name)
            gradients = torch.cat([
                fold_gradients(
                    output, stage.denoiser, stage.basis.layout, x, None, draws, 1
                )[0]
                for x in x_0
            ])
            rotated = stage.basis.rotate(gradients)
            expected = file.query_features(rotated, stage.basis.layout)
            scale = expected.abs().amax(1, keepdim=True)
            assert ((file.features - expected).abs() <= 2e-3 * scale).all()
            torch.testing.assert_close(file.tensors["norm"], rotated.norm(dim=1))
        residuals = torch.stack([
            predict(stage.denoiser, x, None, draws).residual().detach() for x in x_0
        ])
        torch.testing.assert_close(file.tensors["residual"], residuals)
        assert file.facts["seconds"] > 0
        assert file.facts["bytes"] == COUNT * (16 * 2 + 3 * 4)


def dense_datainf(gradients, layout):
    """Return the damping of layers and preconditioned gradients, inverted densely."""
    parts, squares = [], []
    for matrices in layout.split(gradients):
        g = matrices.flatten(1).double()
        damping, n = g.square().mean() / 10, g.square().sum(1)
        parts.append((g - (g @ g.T / (damping + n)) @ g / len(g)) / damping)
        squares.append(n)
    return datainf_damping(torch.stack(squares, 1), layout), torch.cat(parts, 1)


def test_features_from_the_index(root, tmp_path):
    """TRAK's are the index's gradients, DataInf's its damped inverse times them."""
    compute(root, tmp_path, "trak", "datainf")
    stage = stage_of(root, tmp_path)
    layout = stage.basis.layout
    rms = torch.from_numpy(np.fromfile(stage.index.folder / "rms.bin", "<f4"))
    gradients = stage.index.columns(0, layout.num_params) * rms
    identity = torch.eye(3, layout.num_params)
    torch.testing.assert_close(  # what the kernels read is what is decoded here
        torch.from_numpy(stage.index.scores(identity)).float() * rms[:3, None],
        gradients[:, :3].T,
    )
    dampings, solved = dense_datainf(gradients, layout)
    query = torch.randn(2, layout.num_params, generator=keyed_generator(0, "query"))
    with opened(root) as collection:
        trak, datainf = (load_method(collection, m) for m in ("cosine", "datainf"))
    expected = trak.projection.apply(gradients)
    assert torch.allclose(trak.features, expected, atol=2e-3 * float(expected.max()))
    torch.testing.assert_close(trak.tensors["norm"], gradients.norm(dim=1))
    torch.testing.assert_close(datainf.tensors["layer_damping"], dampings.float())
    roots = per_coordinate(dampings.float().sqrt(), layout)
    expected = datainf.projection.apply(solved.float() * roots)
    assert datainf.projection.apply(query).shape[1] == 16 * SETTINGS.dim
    # One bit: the sign of each feature, and the row's component along itself.
    clear = expected.abs() > 1e-4 * expected.abs().max()
    assert (datainf.features.sign() == expected.sign())[clear].all()
    along = (datainf.features * expected).sum(1) / expected.square().sum(1)
    torch.testing.assert_close(along, torch.ones(COUNT))
    found, expected = (
        datainf.query_features(query, layout),
        datainf.projection.apply(query / roots),
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("bits", [8, 4, 1])
def test_columns_are_what_the_kernels_read(tmp_path, bits):
    """Coordinates on both sides of a block's end, in any number of bits."""
    index = GradientIndex(tmp_path, 3, 5001, bits)
    index.create()
    index.write(0, torch.randn(3, 5001, generator=keyed_generator(0, "index")))
    chosen = torch.tensor([0, 1, 4094, 4095, 4096, 4999, 5000])
    units = torch.nn.functional.one_hot(chosen, 5001).float()
    expected = torch.from_numpy(index.scores(units)).float().T
    torch.testing.assert_close(index.columns(0, 5001)[:, chosen], expected)
    torch.testing.assert_close(
        index.columns(4090, 4998), index.columns(0, 5001)[:, 4090:4998]
    )


@pytest.mark.parametrize(
    ("only", "failing"),
    [(("d-trak",), "objective_gradients"), (("datainf",), "layer_products")],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(
    root, tmp_path, monkeypatch, only, failing
):
    """Interrupted twice, chunk by chunk or layer by layer, nothing is lost or new."""
    monkeypatch.setattr(features, "CHUNK", 2)
    monkeypatch.setattr(features, "SAVE_EVERY", 0)
    settings = replace(SETTINGS, dim=12)
    straight = compute(root, tmp_path / "straight", *only, settings=settings)[0]
    expected = safetensors.torch.load_file(straight)
    straight.unlink()
    original, calls = getattr(features, failing), []

    def stopping(*arguments):
        calls.append(None)
        if len(calls) in (4, 7):
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(features, failing, stopping)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compute(root, tmp_path / "broken", *only, settings=settings)
    resumed = compute(root, tmp_path / "broken", *only, settings=settings)[0]
    assert resumed == straight
    found = safetensors.torch.load_file(resumed)
    assert {k: v.numpy().tobytes() for k, v in found.items()} == {
        k: v.numpy().tobytes() for k, v in expected.items()
    }
    undisturbed = len(parameter_layout(stage_of(root, tmp_path).denoiser.unet).layers)
    whole = COUNT if only == ("d-trak",) else undisturbed
    assert len(calls) < 2 * whole  # it went on, it did not begin again
    resumed.unlink()


def test_other_curvatures_are_the_stage_of_that_name(root, tmp_path):
    """Three files, each with the basis and both eigenvalues of its own settings."""
    paths = compute(root, tmp_path, "curvature")
    assert [p.name.rsplit("-", 1)[0] for p in paths] == [
        f"fashion2-method-curvature-{kind}"
        for kind in ("model-reduce", "loss-expand", "loss-reduce")
    ]
    stage = stage_of(root, tmp_path)
    config = methods.other_curvatures(stage.config)[1]
    workspace = open_workspace(config, tmp_path / "again")
    ekfac, kfac = fit_curvature(config, stage.dataset, stage.denoiser, workspace)
    with opened(root) as collection:
        file = load_method(collection, "ekfac-fisher")
    for name, curvature in (("ekfac", ekfac), ("kfac", kfac)):
        vector = torch.randn(1, stage.basis.layout.num_params)
        torch.testing.assert_close(
            file.curvature(stage.basis.layout, name).multiply(vector),
            curvature.multiply(vector),
        )
    changed = {path: path.stat().st_mtime_ns for path in paths}
    assert compute(root, tmp_path, "curvature") == paths
    assert changed == {path: path.stat().st_mtime_ns for path in paths}


def test_a_missing_file_says_how_to_make_it(tmp_path):
    """One sentence with the command; DataInf's names what it reads."""
    write_collection(tmp_path)
    with opened(tmp_path) as collection:
        with pytest.raises(
            LookupError, match="methods --collection fashion2 --only tr"
        ):
            load_method(collection, "journey-trak")
        with pytest.raises(LookupError, match="--only curvature"):
            load_method(collection, "kfac-fisher-reduce")
        with pytest.raises(LookupError, match="it reads the full index"):
            load_method(collection, "datainf")
    for path in (tmp_path / "index").glob("codes*"):
        path.unlink()
    with pytest.raises(LookupError, match="the full index is not beside collection"):
        compute(tmp_path, tmp_path / "work", "datainf")
    (path,) = compute(tmp_path, tmp_path / "work", "trak")
    assert read_facts(path)["settings"]["method"]["source"] == "own draws"
    with pytest.raises(ValueError, match="Nothing is precomputed for 'clip'. Choose"):
        compute(tmp_path, tmp_path / "work", "clip")


def test_a_file_of_another_collection_is_refused(tmp_path):
    """Another model, other settings and damage are three sentences."""
    write_collection(tmp_path)
    (path,) = compute(tmp_path, tmp_path / "work", "trak")
    tensors, header = read_tensors(path)
    facts = header["facts"]
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}

    def refused(sentence, **changes):
        write_tensors(path, tensors, {"facts": facts | changes})
        with opened(tmp_path) as collection:
            with pytest.raises(ValueError, match=sentence):
                _ = load_method(collection, "trak").projection

    refused("belongs to the model 012345.*has the model", denoiser="0123456789abcd")
    other = facts["settings"] | {"seed": 9}
    refused("made with other settings: seed is 0 there and 9 here", settings=other)
    refused("draws other random numbers", projection="none")
    path.write_bytes(b"nothing")
    with opened(tmp_path) as collection:
        with pytest.raises(ValueError, match="is damaged or no file of a method"):
            load_method(collection, "trak")


def test_features_survive_storage():
    """Half precision with a scale per row, whatever the size of the row."""
    features = torch.randn(4, 9, generator=keyed_generator(0, "features"))
    features *= torch.tensor([1e-9, 1.0, 1e9, 0.0])[:, None]
    found = unpack_features(pack_features(features))
    limit = features.abs().amax(1, keepdim=True) * 2**-11
    assert ((found - features).abs() <= limit).all()


def test_settings_come_back_from_a_collection():
    """Through JSON, with tuples and fingerprints as they were."""
    for name in ("glyphs", "fashion2"):
        config = collection_config(name)
        again = config_from_dict(json.loads(json.dumps(config.to_dict())))
        assert again == config
        assert again.fingerprint() == config.fingerprint()
    unknown = config.to_dict() | {"train": {"num_stepz": 1}}
    with pytest.raises(ValueError, match="another version of this program"):
        config_from_dict(unknown)
