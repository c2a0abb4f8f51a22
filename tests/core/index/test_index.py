"""The index and the sketch keep inner products, whatever damping the query brings."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from core.curvature.basis import precondition
from core.index.full import BLOCK, SHARD_EXAMPLES, GradientIndex, balance
from core.index.sketch import make_sketch, pack_signs, packed_products
from core.measure.draws import keyed_generator
from tests.helpers.exact import unpacked

NUM_PARAMS = 2 * BLOCK + 100


def normal(*shape, seed=0):
    """Return keyed normal numbers."""
    return torch.randn(*shape, generator=keyed_generator(seed, "index test"))


def gradients(count):
    """Return gradients whose coordinates differ in size by 10^6, and their rms."""
    sizes = 10 ** (6 * torch.rand(NUM_PARAMS, generator=keyed_generator(1, "sizes")))
    z = normal(count, NUM_PARAMS) * sizes
    return z, z.square().mean(0).sqrt()


def stored(values, folder, bits):
    """Return what an index keeps of vectors (B, P), decoded, and the block scales."""
    index = GradientIndex(folder, len(values), NUM_PARAMS, bits)
    index.create()
    index.write(0, values)
    packed, scales = index._shard(0, "r")
    codes = torch.from_numpy(unpacked(packed, NUM_PARAMS, BLOCK, bits))
    scales = torch.from_numpy(np.array(scales)).double()
    return codes * scales.repeat_interleave(BLOCK, 1)[:, :NUM_PARAMS], scales


def by_block(values):
    """Return vectors (B, P) as (B, blocks, BLOCK), the last block filled with zeros."""
    padded = torch.nn.functional.pad(values, (0, -NUM_PARAMS % BLOCK))
    return padded.unflatten(1, (-1, BLOCK))


@pytest.mark.parametrize("bits", [8, 4])
def test_quantisation_is_within_half_a_scale(tmp_path, bits):
    """Every coordinate comes back to within half its block's step; zeros stay zero."""
    values = normal(5, NUM_PARAMS) * torch.tensor([1e-6, 1, 1e6, 1, 0])[:, None]
    back, scales = stored(values, tmp_path, bits)
    assert (by_block(back - values).abs().amax(2) <= scales * 0.5001).all()
    assert (back[4] == 0).all()


def test_one_bit_keeps_the_sign_and_the_length_along_the_vector(tmp_path):
    """A block's product with its packed self is |v|^2; the signs are its own."""
    values = normal(4, NUM_PARAMS) * torch.tensor([1e-3, 1, 1e3, 0])[:, None]
    back, _ = stored(values, tmp_path, 1)
    assert torch.equal(back.sign()[:3], values.double().sign()[:3])
    products = (by_block(back) * by_block(values)).sum(2)
    lengths = by_block(values.double()).square().sum(2)
    torch.testing.assert_close(products, lengths, rtol=1e-5, atol=0)


# Least Spearman correlation, and largest error relative to the largest score.
AGREEMENT = {8: (0.999, 0.02), 4: (0.96, 0.25)}


@pytest.mark.parametrize("bits", AGREEMENT)
@pytest.mark.parametrize("curvature", ["ekfac", "kfac", None])
@pytest.mark.parametrize("relative_damping", [1e-8, 1e-3, 10.0])
def test_one_index_serves_every_damping_and_curvature(
    tmp_path, relative_damping, curvature, bits
):
    """Scores keep their ranking and their size for any damping and eigenvalues."""
    z, rms = gradients(60)
    index = GradientIndex(tmp_path, 60, NUM_PARAMS, bits)
    index.create()
    index.write(0, z / balance(rms))
    eigenvalues, damping = rms.square(), relative_damping * float(rms.square().mean())
    if curvature == "kfac":  # of the same size, but wrong by factors of two or so
        eigenvalues = eigenvalues * normal(NUM_PARAMS, seed=3).mul(0.7).exp()
    query = z[:3] + normal(3, NUM_PARAMS, seed=2) * rms
    if curvature is None:
        solved, exact = precondition(query), query.double() @ z.double().T
    else:
        solved = precondition(query, eigenvalues, damping)
        damped = (eigenvalues + damping).double()
        exact = (query.double() / damped) @ z.double().T
    scores = index.scores(solved * balance(rms))
    agreement, error = AGREEMENT[bits]
    for mine, expected in zip(scores, exact.numpy(), strict=True):
        assert spearmanr(mine, expected).statistic > agreement
        assert np.abs(mine - expected).max() < error * np.abs(expected).max()


@pytest.mark.parametrize("damping", [0.0, -1.0, float("nan")])
def test_a_damping_that_is_not_positive_is_refused(damping):
    """Directions without curvature would be divided by nothing."""
    with pytest.raises(ValueError, match="Give a positive one"):
        precondition(torch.ones(2), torch.tensor([0.0, 1.0]), damping)


def test_fewer_bits_lose_more(tmp_path):
    """The error of scores grows from 8 bits to 4 to 1, and their size stays."""
    z, rms = gradients(60)
    query = z[:3] / rms.square() * balance(rms)
    exact = (query / balance(rms)).double() @ z.double().T
    errors = []
    for bits in (8, 4, 1):
        index = GradientIndex(tmp_path / str(bits), 60, NUM_PARAMS, bits)
        index.create()
        index.write(0, z / balance(rms))
        scores = torch.from_numpy(index.scores(query))
        errors.append(float((scores - exact).norm() / exact.norm()))
        # An image's product with itself has no error of chance to first order.
        own, expected = scores.diagonal(), exact.diagonal()
        torch.testing.assert_close(own, expected, rtol=0.05, atol=0)
    assert errors[0] < 0.1 * errors[1] < 0.1 * errors[2]


def test_an_index_opened_with_other_bits_says_both(tmp_path):
    """Neither scores nor a write may come from misread bytes."""
    GradientIndex(tmp_path, 40, 5000, 8).create()
    other = GradientIndex(tmp_path, 40, 5000, 4)
    message = "holds 8 bits for each of 40 x 5000 coordinates and was opened as an "
    message += "index of 4"
    with pytest.raises(ValueError, match=message):
        other.scores(normal(1, 5000))
    with pytest.raises(ValueError, match=message):
        other.write(0, normal(1, 5000))


@pytest.mark.parametrize("bits", [8, 4, 1])
def test_index_does_not_depend_on_the_order_of_writing(tmp_path, bits):
    """Written whole, or in pieces backwards and twice: the same bytes."""
    count = SHARD_EXAMPLES + 10
    values = normal(count, 500)
    whole = GradientIndex(tmp_path / "whole", count, 500, bits)
    pieces = GradientIndex(tmp_path / "pieces", count, 500, bits)
    whole.create()
    pieces.create()
    whole.write(0, values)
    for first in [250, 0, 100, 250]:
        pieces.write(first, values[first : first + 150])
    for name in whole.shard_names():
        assert (whole.folder / name).read_bytes() == (pieces.folder / name).read_bytes()
    reopened = GradientIndex(tmp_path / "whole", count, 500, bits)
    scores = whole.scores(values)
    np.testing.assert_array_equal(reopened.scores(values, piece_bytes=3500), scores)
    shuffled = torch.randperm(count, generator=keyed_generator(0, "shuffle"))
    backwards = GradientIndex(tmp_path / "shuffled", count, 500, bits)
    backwards.create()
    backwards.write(0, values[shuffled])
    np.testing.assert_array_equal(backwards.scores(values), scores[:, shuffled])


def test_reading_can_be_stopped(tmp_path):
    """`on_rows` sees every step and may raise."""
    index = GradientIndex(tmp_path, 40, 50)
    index.create()
    seen = []

    def stop(done, total):
        seen.append((done, total))
        if done >= 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.scores(normal(1, 50), on_rows=stop, piece_bytes=50)  # of one example
    assert seen == [(done, 40) for done in range(1, 33)]


def test_a_sketch_keeps_inner_products_on_average():
    """Over 300 random sketches the mean product is the exact one, within 5 errors."""
    a, b = normal(2, 300)
    products = []
    for seed in range(300):
        sketch = make_sketch(300, 64, keyed_generator(seed, "sketch test"))
        one, other = sketch.apply(torch.stack([a, b]))
        products.append(float(one @ other))
    error = np.std(products) / len(products) ** 0.5
    assert abs(np.mean(products) - float(a @ b)) < 5 * error


def test_a_sketch_uses_every_coordinate_once():
    """With as many places as coordinates, a sketch is a signed permutation."""
    sketch = make_sketch(96, 96, keyed_generator(0, "all"))
    a, b = normal(2, 96)
    one, other = sketch.apply(torch.stack([a, b]))
    torch.testing.assert_close(one @ other, a @ b)
    torch.testing.assert_close(one.abs().sort().values, a.abs().sort().values)


def test_a_weighted_sketch_is_the_sketch_of_weighted_vectors():
    """Weights act on the coordinates before they are added up, as a loop does."""
    vectors, weights = normal(3, 100), normal(1, 100, seed=4)[0].abs()
    sketch = make_sketch(100, 24, keyed_generator(0, "weighted"))
    expected = torch.zeros(3, 24, dtype=torch.float64)
    for bucket, (places, signs) in enumerate(
        zip(sketch.order.tolist(), sketch.signs.tolist(), strict=True)
    ):
        for coordinate, sign in zip(places, signs, strict=True):
            if coordinate < 100:
                term = vectors[:, coordinate] * weights[coordinate]
                expected[:, bucket] += sign * term.double()
    found = sketch.weighted(weights).apply(vectors)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_packed_products_equal_products_with_unpacked_signs():
    """The products are scale * <query, signs>, for several queries at once."""
    stored, queries = normal(9, 16_384), normal(3, 16_384, seed=3)
    bits, scales = pack_signs(stored)
    signs = torch.where(stored > 0, 1.0, -1.0).double()
    expected = (queries.double() @ signs.T).numpy() * scales
    result = packed_products(queries, bits, scales)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-2)


def test_packing_keeps_the_size_of_a_vector():
    """One bit a coordinate, yet a vector's product with itself is exact."""
    stored = normal(4, 8192) * torch.tensor([1e-3, 1, 1e3, 0])[:, None]
    bits, scales = pack_signs(stored)
    products = packed_products(stored, bits, scales).diagonal()
    exact = stored.double().square().sum(1).numpy()
    np.testing.assert_allclose(products, exact, rtol=1e-4, atol=1e-9)


def test_another_sketch_has_another_checksum():
    """A collection can refuse a query sketched with other random numbers."""
    one, same, other = (
        make_sketch(500, 64, keyed_generator(seed, "check")).checksum()
        for seed in (0, 0, 1)
    )
    assert one == same != other
