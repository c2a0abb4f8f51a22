"""A network of one's own, without diffusers: from its folder to answers, and exact."""

import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import spearmanr

import core.api
from core.api import build, open_collection
from core.engine.query import query_draws
from core.explorer.explorer import Lens, open_explorer
from core.model.checkpoint import denoiser_from_bytes, denoiser_to_bytes
from core.model.model_folders import OWN
from core.model.own import OwnModel
from core.model.own_unet import VARIABLE, own_unet
from core.model.parameters import parameter_layout
from core.recipes import named_config
from precompute.__main__ import main
from precompute.stages.stages import compute
from tests.core.model.test_pipelines import TOY
from tests.helpers import layouts, own_models
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    app_runs_first,
    open_app,
    wait_for_jobs,
)

README = Path(__file__).resolve().parents[3] / "core" / "README.md"
DRAWS = 64
SMALL = {"num_train_timesteps": 20, "beta_end": 0.3, "clip_sample": False}


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Keep a user's sets apart, and name the file of the networks."""
    monkeypatch.setenv("AFTERIMAGE_SETS", str(tmp_path / "sets"))
    monkeypatch.setenv(VARIABLE, str(own_models.FILE))


def run(*words) -> int:
    """Run a command; return its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["precompute", *map(str, words)])
        return main()


def trained(net, images: np.ndarray, steps: int = 300):
    """Train a network on pixels (N, 16) in [-1, 1], as anyone might."""
    alphas = OwnModel(net, "TinyMLP", (1, 4, 4), SMALL).denoiser().alphas_cumprod
    optimizer, g = torch.optim.Adam(net.parameters(), 1e-2), torch.manual_seed(0)
    x_0 = torch.tensor(images).view(-1, 1, 4, 4)
    for _ in range(steps):
        noise = torch.randn(x_0.shape, generator=g)
        t = torch.randint(20, (len(x_0),), generator=g)
        a = alphas[t][:, None, None, None]
        loss = (net(a.sqrt() * x_0 + (1 - a).sqrt() * noise, t) - noise).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def test_from_an_mlp_to_answers_that_a_dense_solve_gives(tmp_path, monkeypatch):
    """Products of gradients to 8 bits; EK-FAC by order, as it approximates the GGN.

    The reference writes the loss out, takes one gradient a draw, and inverts the whole
    GGN; it shares the draws, the images and the weights, and no other code.
    """
    data, rng = tmp_path / "in", np.random.default_rng(0)
    data.mkdir()
    for i in range(12):
        pixels = (rng.random((4, 4)) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(data / f"{i:02}.png")
    images = np.stack([np.asarray(Image.open(p)) for p in sorted(data.iterdir())])
    torch.manual_seed(0)
    net = trained(own_models.TinyMLP(), np.float32(images.reshape(12, 16) / 127.5 - 1))
    OwnModel(net, "TinyMLP", (1, 4, 4), SMALL).save_pretrained(tmp_path / "model")
    changes = f"""
        curvature.factor_draws={DRAWS} curvature.eigenvalue_draws={DRAWS}
        curvature.group_size=1 gradients.num_draws={DRAWS} gradients.sketch_dim=1024
        gradients.relative_damping=0.1
        samples.num_samples=2 samples.num_steps=4 samples.num_draws=64
    """.split()
    options = [word for change in changes for word in ("--set", change)]
    where = ["--collection", "mine", "--data", data, *options]
    assert run("import-model", tmp_path / "model", *where) == 0
    root, work = tmp_path / "root", tmp_path / "work"
    assert run("build", "--collection", "mine", "--root", root, "--work", work) == 0

    made = compute(named_config("mine"), root, work, "cpu")  # nothing is left to do
    draws, x_0 = made.stage.draws, made.stage.x_0.double()
    damping = made.stage.damping
    explorer = open_explorer("mine", root)
    query = explorer.query_from_example(int(explorer.examples.table.index[3]))
    asked = query_draws_of(explorer)
    net, alphas = net.double(), explorer.engine.denoiser.alphas_cumprod.double()
    parameters = [net.first.weight, net.first.bias, net.last.weight, net.last.bias]

    def noised(x, noise, t):
        a = alphas[t].view(-1, 1, 1, 1)
        return a.sqrt() * x + (1 - a).sqrt() * noise

    def gradient(x, drawn):
        predicted = net(
            noised(x, drawn.noise.double(), drawn.timesteps), drawn.timesteps
        )
        losses = (predicted - drawn.noise.double()).square().sum((1, 2, 3))
        mean = (drawn.weights.double() * losses).mean()
        return flat(torch.autograd.grad(mean, parameters))

    def flat(parts):
        (w1, b1, w2, b2) = parts
        columns = torch.cat([w1, b1[:, None]], 1), torch.cat([w2, b2[:, None]], 1)
        return torch.cat([column.flatten() for column in columns])

    training = torch.stack([gradient(x[None], draws) for x in x_0])
    wanted = gradient(x_0[3][None], asked)
    ggn = torch.zeros(len(wanted), len(wanted), dtype=torch.float64)
    for x in x_0:
        x_t = noised(x[None], draws.noise.double(), draws.timesteps)
        for one, t, weight in zip(x_t, draws.timesteps, draws.weights, strict=True):
            outputs = net(one[None], t[None]).flatten()
            rows = torch.stack([
                flat(torch.autograd.grad(output, parameters, retain_graph=True))
                for output in outputs
            ])
            ggn += weight * 2 * rows.T @ rows / (len(x_0) * len(draws))
    solved = torch.linalg.solve(ggn + damping * torch.eye(len(ggn)), wanted)

    expected = {"gradient": training @ wanted, "ekfac": training @ solved}
    for method, scores in expected.items():
        lens = Lens(method, num_draws=DRAWS, form="full")
        found = explorer.answer(query, lens).scores
        scores = scores.numpy()
        if method == "gradient":
            centred = scores - scores.mean()
            off = np.abs(found - found.mean() - centred).max()
            assert off < 0.02 * np.abs(centred).max(), (found, scores)
        assert spearmanr(found, scores).statistic > 0.9, (method, found, scores)

    link = {"collection": "mine", "example": "3"}
    app = wait_for_jobs(open_app(root, monkeypatch, "", **link))
    assert not app.exception and not app.error, app.exception


def query_draws_of(explorer):
    """Return the draws that queries of a collection share."""
    return query_draws(explorer.engine.denoiser, DRAWS, explorer.engine.seed)


def test_the_lines_of_the_readme_run(tmp_path, monkeypatch):
    """The file of the network, word for word, and what is done with it."""
    section = README.read_text().split("## A model of your own\n", 1)[1]
    code, lines = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.S)
    assert len((code + lines).splitlines()) <= 30
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("my_model.py").write_text(code)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "my_model.py"))
    layouts.image_folder(tmp_path).rename("drawings")
    Image.new("RGB", (40, 30), "red").save("photo.png")
    names = {}
    exec(code, names)
    torch.save(names["PixelMLP"]().state_dict(), "trained.pt")
    options = [word for change in TOY for word in ("--set", change)]
    monkeypatch.setattr(
        core.api, "build", partial(build, folder="made", options=options)
    )
    opening = partial(open_collection, folder="made")
    monkeypatch.setattr(core.api, "open_collection", opening)
    exec(lines, names)
    assert names["answer"].answer.scores.std() > 0


def test_a_network_with_classes_and_chosen_layers_comes_back(tmp_path):
    """Its labels reach it, and only the layers that were named count."""
    made = {"make": "with_two_classes", "shape": (1, 4, 4), "classes": 2}
    own = OwnModel(
        own_models.with_two_classes(), schedule=SMALL, layers=("last",), **made
    )
    denoiser = own.denoiser()
    again = denoiser_from_bytes(denoiser_to_bytes(denoiser, None))
    x = torch.randn(3, 1, 4, 4)
    t, labels = torch.tensor([1, 5, 9]), torch.tensor([0, 1, 2])
    torch.testing.assert_close(
        again.losses(x, x, t, labels), denoiser.losses(x, x, t, labels)
    )
    assert not torch.equal(again.predict(x, t, labels), again.predict(x, t, labels * 0))
    assert [layer.name for layer in parameter_layout(again.unet).layers] == ["net.last"]
    assert again.null_label == 2 and again.scheduler.config.beta_end == 0.3


def test_without_its_code_a_collection_says_what_is_missing(tmp_path, monkeypatch):
    """And nothing but what the file itself defines can be asked for by name."""
    own = OwnModel(own_models.TinyMLP(), "TinyMLP", (1, 4, 4), SMALL)
    own.save_pretrained(tmp_path)
    data = (tmp_path / OWN).read_bytes()
    described = {"make": "TinyMLP", "shape": [1, 4, 4], "layers": []}
    refused = {
        "Path": "has no class or function 'Path'",
        "nothing": "has no class or function 'nothing'",
    }
    for make, said in refused.items():
        with pytest.raises(ValueError, match=said):
            own_unet(described | {"make": make})
    with pytest.raises(ValueError, match="has no layer 'middle'. It has first, last."):
        own_unet(described | {"layers": ["middle"]})
    header, rest = data.split(b"TinyMLP")
    with pytest.raises(ValueError, match="not those of 'WideMLP'"):
        denoiser_from_bytes(header + b"WideMLP" + rest)
    monkeypatch.setenv(VARIABLE, "/none/such.py")
    with pytest.raises(ValueError, match="'/none/such.py', which is not a file"):
        denoiser_from_bytes(data)
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ValueError, match="code, which no collection brings"):
        denoiser_from_bytes(data)
