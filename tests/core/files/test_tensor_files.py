"""Files of tensors: whole as written, or refused."""

import pytest
import torch

from core.scores.tensors import Damaged, read_facts, read_tensors, tensors_file

TENSORS = {
    "half": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).half(),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "one": torch.tensor(2.5, dtype=torch.float64),
}
FACTS = {"settings": {"dim": 16, "name": "ü"}, "seconds": 1.5}


def test_tensors_and_facts_come_back_bit_for_bit(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(tensors_file(TENSORS, FACTS))
    tensors, facts = read_tensors(path)
    assert facts == read_facts(path) == FACTS
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype
        assert torch.equal(tensor, TENSORS[name])


def test_equal_content_is_equal_bytes():
    """The library writes its metadata in another order each time."""
    assert len({tensors_file(TENSORS, FACTS) for _ in range(30)}) == 1
    assert len({tensors_file(TENSORS, {}), tensors_file(TENSORS, FACTS)}) == 2


def test_no_flipped_bit_and_no_lost_byte_goes_unseen(tmp_path):
    """Every byte of the file, header included, with a bit flipped; and every length."""
    path, data = tmp_path / "a.safetensors", tensors_file(TENSORS, FACTS)
    harmed = [
        data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        for place in range(len(data))
    ]
    for one in [*harmed, *(data[:length] for length in range(len(data)))]:
        path.write_bytes(one)
        try:
            tensors, facts = read_tensors(path)
        except Damaged:
            continue
        # Blanks that fill up the header may differ, what it says may not.
        assert facts == FACTS
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    for data in (b"", b"PK\x03\x04" + b"\0" * 100, b"Dear file,\n" * 50):
        path.write_bytes(data)
        with pytest.raises(Damaged):
            read_tensors(path)
    with pytest.raises(Damaged):
        read_facts(tmp_path)
