"""An index on a device gives the scores that the compiled kernels give."""

import numpy as np
import pytest
import torch

from core.index.full import BLOCK, SHARD_EXAMPLES, GradientIndex
from core.index.gpu import DeviceIndex
from core.measure.draws import keyed_generator

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def normal(*shape):
    """Return keyed normal numbers."""
    return torch.randn(*shape, generator=keyed_generator(0, "device index test"))


def index(folder, num_params, bits, count=9):
    """Return a written index."""
    made = GradientIndex(folder, count, num_params, bits)
    made.create()
    made.write(0, normal(count, num_params) * 10.0 ** torch.arange(count)[:, None])
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("num_params", [50, BLOCK, 2 * BLOCK + 101])
@pytest.mark.parametrize("bits", [8, 4, 1])
def test_scores_equal_those_of_the_kernels(
    tmp_path, monkeypatch, bits, num_params, resident, device
):
    """In pieces of two examples, decoded one by one, first asked and asked again."""
    on_disk = index(tmp_path, num_params, bits)
    monkeypatch.setattr("core.index.gpu.PIECE_BYTES", num_params * bits // 4 + 2)
    monkeypatch.setattr("core.index.gpu.DECODED_BYTES", 4 * num_params)
    on_device, queries = DeviceIndex(on_disk, device, resident), normal(3, num_params)
    expected = on_disk.scores(queries)
    size = np.abs(expected).max(0)
    for _ in range(2):
        found = on_device.scores(queries)
        assert (np.abs(found - expected) <= 1e-5 * size).all()


def test_a_resident_index_reads_its_files_once(tmp_path, monkeypatch):
    """After the first question the files may be gone; a streamed one needs them."""
    on_disk = index(tmp_path, 300, 8)
    resident, streamed = (DeviceIndex(on_disk, "cpu", kept) for kept in (True, False))
    queries = normal(2, 300)
    expected = resident.scores(queries)

    def gone(self, num_bytes):
        raise FileNotFoundError

    monkeypatch.setattr(GradientIndex, "pieces", gone)
    np.testing.assert_array_equal(resident.scores(queries), expected)
    with pytest.raises(FileNotFoundError):
        streamed.scores(queries)


def test_a_stopped_question_leaves_no_part_of_the_index(tmp_path, monkeypatch):
    """`on_rows` may raise; the next question still reads all examples."""
    count = SHARD_EXAMPLES + 5
    on_disk = index(tmp_path, 40, 8, count)
    resident, seen = DeviceIndex(on_disk, "cpu", True), []

    def stop(done, total):
        seen.append((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resident.scores(normal(1, 40), stop)
    assert seen == [(SHARD_EXAMPLES, count)]
    assert resident.scores(normal(1, 40)).shape == (1, count)
