"""Products with compressed vectors equal dense ones, however the work is divided."""

import numpy as np
import pytest

from core.index.kernels import block_products, encode_blocks, packed_bytes
from tests.helpers.exact import unpacked

BLOCK = 256
BITS = (8, 4, 1)


def stored(num_params, bits, count=11):
    """Return random packed codes (N, bytes) and scales of all sizes."""
    generator = np.random.default_rng(0)
    width = packed_bytes(num_params, BLOCK, bits)
    codes = generator.integers(0, 256, (count, width), dtype=np.uint8)
    sizes = 10.0 ** generator.uniform(-6, 6, (count, -(-num_params // BLOCK)))
    return codes, sizes.astype(np.float32)


def normal(*shape):
    """Return normal numbers as float32."""
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("num_params", [1, 255, 256, 1289, 2048])
@pytest.mark.parametrize("num_queries", [1, 5])
def test_products_equal_those_of_unpacked_vectors(num_params, num_queries, bits):
    """Within 1e-5 of the sum of absolute terms, in float64, also in the last block."""
    codes, scales = stored(num_params, bits)
    queries = normal(num_queries, num_params)
    sizes = np.repeat(scales.astype(float), BLOCK, axis=1)[:, :num_params]
    vectors = unpacked(codes, num_params, BLOCK, bits) * sizes
    products = block_products(queries, codes, scales, BLOCK, bits, num_threads=1)
    bound = 1e-5 * np.abs(queries) @ np.abs(vectors).T
    assert (np.abs(products - queries.astype(float) @ vectors.T) <= bound).all()


@pytest.mark.parametrize("bits", BITS)
def test_products_do_not_depend_on_threads_or_chunks(bits):
    """The same bits from one thread, from three, and one or four rows at a time."""
    codes, scales = stored(1289, bits)
    queries = normal(5, 1289)
    whole = block_products(queries, codes, scales, BLOCK, bits, num_threads=1)
    for threads in (2, 3, 20):
        other = block_products(queries, codes, scales, BLOCK, bits, threads)
        np.testing.assert_array_equal(other, whole)
    for rows in (1, 4, 7):
        parts = [
            block_products(
                queries, codes[i : i + rows], scales[i : i + rows], BLOCK, bits, 2
            )
            for i in range(0, len(codes), rows)
        ]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


@pytest.mark.parametrize("bits", BITS)
def test_a_product_does_not_depend_on_the_other_queries(bits):
    """Asked alone, a query gets the same bits as among others."""
    codes, scales = stored(1289, bits)
    queries = normal(5, 1289)
    together = block_products(queries, codes, scales, BLOCK, bits, num_threads=1)
    for query, products in zip(queries, together, strict=True):
        alone = block_products(query[None], codes, scales, BLOCK, bits, num_threads=1)
        np.testing.assert_array_equal(alone[0], products)


@pytest.mark.parametrize("bits", BITS)
def test_zeros_give_zero_and_what_is_not_finite_stays_so(bits):
    """A zero query or vector has products of exactly 0; NaN is not lost."""
    codes, scales = stored(600, bits)
    scales[3] = 0
    queries = normal(3, 600)
    queries[0] = 0
    queries[2, 599] = np.nan
    products = block_products(queries, codes, scales, BLOCK, bits, num_threads=2)
    assert (products[0] == 0).all()
    assert products[1, 3] == 0
    assert np.isnan(products[2]).all()


def encoded(values, bits, threads=1):
    """Return the packed codes and scales of vectors (N, P)."""
    num_params = values.shape[1]
    codes = np.full((len(values), packed_bytes(num_params, BLOCK, bits)), 255, "u1")
    scales = np.empty((len(values), -(-num_params // BLOCK)), np.float32)
    encode_blocks(values, codes, scales, BLOCK, bits, threads)
    return codes, scales


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("num_params", [1, 256, 1289])
def test_codes_are_what_numpy_says_block_by_block(num_params, bits):
    """Rounded quotients by the scale of the largest, or signs; from any threads."""
    values = normal(5, num_params) * np.float32([[1e-6], [1], [1e15], [0], [1e-3]])
    packed, scales = encoded(values, bits)
    codes = unpacked(packed, num_params, BLOCK, bits)
    for number in range(-(-num_params // BLOCK)):
        part = slice(number * BLOCK, (number + 1) * BLOCK)
        block = values[:, part]
        if bits == 1:
            total = np.abs(block).astype(float).sum(1)
            squares = np.square(block.astype(float)).sum(1)
            expected = squares / np.where(total > 0, total, 1)
            np.testing.assert_allclose(scales[:, number], expected, rtol=1e-5)
            np.testing.assert_array_equal(codes[:, part], np.where(block > 0, 1, -1))
        else:
            expected = np.abs(block).max(1) / np.float32(2 ** (bits - 1) - 1)
            np.testing.assert_array_equal(scales[:, number], expected)
            quotients = block / np.where(expected > 0, expected, 1)[:, None]
            np.testing.assert_array_equal(codes[:, part], np.rint(quotients))
    for mine, other in zip((packed, scales), encoded(values, bits, 3), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("bits", BITS)
def test_a_scale_says_that_a_block_was_not_finite(bits):
    """NaN or infinity in a gradient is not stored as an ordinary number."""
    values = normal(3, 300)
    values[1, 5], values[2, 299] = np.nan, -np.inf
    finite = [[True, True], [False, True], [True, False]]
    np.testing.assert_array_equal(np.isfinite(encoded(values, bits)[1]), finite)
