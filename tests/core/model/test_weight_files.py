"""The one door to files of weights: nothing in them runs, nothing in them is lost."""

import logging
import os
import warnings

import pytest
import torch
from safetensors.torch import save_file

from core.model.weight_files import check_finite, quietly, read_weights


class Harm:
    """What makes a folder where it is unpickled as more than weights."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        """Return the code."""
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
def test_no_code_of_a_pickle_runs(zipped, tmp_path):
    file, done = tmp_path / "lora.pt", tmp_path / "done"
    held = {"a": torch.ones(2), "b": Harm(done)}
    torch.save(held, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match="so it was not opened. Save the weights as"):
        read_weights(file)
    assert not done.exists()
    torch.load(file, weights_only=False)  # it would have
    assert done.exists()


@pytest.mark.parametrize("name", ["a.safetensors", "a.bin", "a.ckpt", "a"])
@pytest.mark.parametrize("kind", ["safetensors", "zip", "before"])
def test_a_file_is_known_by_what_is_in_it(kind, name, tmp_path):
    held = {"x": torch.arange(6.0).view(2, 3), "y": torch.ones(1, dtype=torch.half)}
    if kind == "safetensors":
        save_file(held, tmp_path / name, {"said": "here"})
    else:
        with (tmp_path / name).open("wb") as file:
            torch.save(held, file, _use_new_zipfile_serialization=kind == "zip")
    weights, facts = read_weights(tmp_path / name)
    assert weights.keys() == held.keys()
    assert all(torch.equal(weights[name], held[name]) for name in held)
    assert facts == ({"said": "here"} if kind == "safetensors" else {})


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float8_e4m3fn])
def test_no_number_is_found_in_every_precision(dtype):
    good = torch.ones(3).to(dtype)
    bad = torch.tensor([1.0, torch.nan, 1.0]).to(dtype)
    check_finite([("a", good), ("b", torch.ones(2, dtype=torch.long))], "It")
    with pytest.raises(ValueError, match="^It has .*: 'b', and 1 more. Use a checkpoi"):
        check_finite([("a", good), ("b", bad), ("c", bad)], "It")


def test_libraries_speak_again_after_they_were_quiet(caplog):
    logger = logging.getLogger("diffusers")
    level = logger.level
    with quietly():
        logger.error("You should probably TRAIN this model.")
        warnings.warn("Set weights_only to False.", stacklevel=1)
    assert logger.level == level and not caplog.records
