"""Files of tensors: whole as written, or refused."""

import json

import pytest
import safetensors.torch
import torch

from core.files.tensor_files import (
    read_facts,
    read_header,
    read_tensors,
    tensors_file,
    write_tensors,
)
from core.files.whole import Damaged

TENSORS = {
    "half": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).half(),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "one": torch.tensor(2.5, dtype=torch.float64),
}
FACTS = {"settings": {"dim": 16, "name": "ü"}, "seconds": 1.5}
HEADER = {"facts": FACTS}


def test_tensors_and_facts_come_back_bit_for_bit(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(tensors_file(TENSORS, HEADER))
    tensors, header = read_tensors(path)
    assert header == read_header(path) == HEADER
    assert read_facts(path) == FACTS
    assert read_tensors(path.read_bytes())[1] == HEADER
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype
        assert torch.equal(tensor, TENSORS[name])


def test_equal_content_is_equal_bytes():
    """The library writes its metadata in another order each time."""
    assert len({tensors_file(TENSORS, HEADER) for _ in range(30)}) == 1
    assert len({tensors_file(TENSORS, {}), tensors_file(TENSORS, HEADER)}) == 2


@pytest.mark.parametrize("wanted", [HEADER, HEADER | {"denoiser": [1]}])
def test_no_flipped_bit_and_no_lost_byte_goes_unseen(tmp_path, wanted):
    """Every byte of the file, header included, with a bit flipped; and every length."""
    path, data = tmp_path / "a.safetensors", tensors_file(TENSORS, wanted)
    harmed = [
        data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        for place in range(len(data))
    ]
    for one in [*harmed, *(data[:length] for length in range(len(data)))]:
        path.write_bytes(one)
        try:
            tensors, header = read_tensors(path)
        except Damaged:
            continue
        # Blanks that fill up the header may differ, what it says may not.
        assert header == wanted
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    for data in (b"", b"PK\x03\x04" + b"\0" * 100, b"Dear file,\n" * 50):
        path.write_bytes(data)
        with pytest.raises(Damaged):
            read_tensors(path)
    with pytest.raises(Damaged):
        read_facts(tmp_path)


def test_files_of_before_there_were_seals_are_read(tmp_path):
    """Unfinished work, models and eigenvectors, as the library alone wrote them."""
    path = tmp_path / "a.safetensors"
    for metadata, header in (
        ({"facts": json.dumps(FACTS)}, HEADER),
        ({"denoiser": "{}", "facts": json.dumps(FACTS)}, HEADER | {"denoiser": {}}),
        ({"step": "12"}, {"step": 12}),
        (None, {}),
    ):
        path.write_bytes(safetensors.torch.save(TENSORS, metadata))
        tensors, found = read_tensors(path, sealed=False)
        assert found == header == read_header(path)
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
        with pytest.raises(Damaged):
            read_tensors(path)


def test_a_seal_is_held_against_the_file_where_none_is_needed(tmp_path):
    path = tmp_path / "folder" / "a.safetensors"
    write_tensors(path, TENSORS, HEADER | {"denoiser": [1]})
    assert path.read_bytes() == tensors_file(TENSORS, HEADER | {"denoiser": [1]})
    assert read_tensors(path, sealed=False)[1] == HEADER | {"denoiser": [1]}
    for old, new in ((b"1.5", b"1.6"), (b"[1]", b"[2]")):
        path.write_bytes(path.read_bytes().replace(old, new))
        with pytest.raises(Damaged):
            read_tensors(path, sealed=False)


def test_a_model_without_a_seal_is_what_the_library_writes():
    """Its bytes name it: an imported model is called by their checksum."""
    header = {"denoiser": {"captions": ["ü", "a/b"], "null_label": None}}
    wanted = safetensors.torch.save(
        TENSORS, {"denoiser": json.dumps(header["denoiser"])}
    )
    assert tensors_file(TENSORS, header, sealed=False) == wanted
