"""What lies in a work folder: found again, made once, and refused if damaged."""

import sys

import pytest
import torch

from core.files.whole import Damaged
from core.presets import collection_config
from precompute import __main__ as command
from precompute.machinery.workspace import open_workspace

TENSORS = {"x": torch.arange(6.0).reshape(2, 3)}


@pytest.fixture
def workspace(tmp_path):
    """Return an empty workspace of a tiny collection."""
    return open_workspace(collection_config("glyphs", "tiny"), tmp_path)


def test_a_result_is_made_once(workspace):
    """The second time it comes from the file, with the seconds that it took."""
    made = []

    def make():
        made.append(1)
        return TENSORS

    first, second = (workspace.kept("samples", "thing", make) for _ in range(2))
    assert made == [1] and torch.equal(first["x"], second["x"])
    tensors, facts = workspace.load("samples", "thing")
    assert torch.equal(tensors["x"], TENSORS["x"]) and facts["seconds"] >= 0
    assert workspace.load("gradients", "thing") is None


def test_a_damaged_result_is_one_sentence(workspace, monkeypatch, capsys):
    """Whatever byte of it was changed; the sentence names the file to remove."""
    workspace.save("samples", "thing", TENSORS, seconds=1.0)
    path = workspace.path("samples", "thing.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        workspace.load("samples", "thing")
    monkeypatch.setattr(command, "run", lambda _: workspace.load("samples", "thing"))
    monkeypatch.setattr(sys, "argv", ["precompute", "inspect-data", "x"])
    assert command.main() == 1
    text = capsys.readouterr().err
    assert str(path) in text and "is damaged. Remove it and run the same" in text
    assert text.count("\n") == 1
