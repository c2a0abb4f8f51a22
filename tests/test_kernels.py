"""Products with compressed vectors equal dense ones, however the work is divided."""

import numpy as np
import pytest

from core.kernels import SIGN_BYTES, block_products, encode_blocks, sign_products

BLOCK = 256


def stored(num_params, count=11):
    """Return random codes (N, P) and block scales (N, B) of very different sizes."""
    generator = np.random.default_rng(0)
    codes = generator.integers(-127, 128, (count, num_params), dtype=np.int8)
    sizes = 10.0 ** generator.uniform(-6, 6, (count, -(-num_params // BLOCK)))
    return codes, sizes.astype(np.float32)


def normal(*shape):
    """Return normal numbers as float32."""
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("num_params", [1, 255, 256, 1289, 2048])
@pytest.mark.parametrize("num_queries", [1, 5])
def test_products_equal_those_of_decoded_vectors(num_params, num_queries):
    """Within 1e-5 of the sum of absolute terms, in float64, also in the last block."""
    codes, scales = stored(num_params)
    queries = normal(num_queries, num_params)
    vectors = codes * np.repeat(scales.astype(float), BLOCK, axis=1)[:, :num_params]
    products = block_products(queries, codes, scales, BLOCK, num_threads=1)
    bound = 1e-5 * np.abs(queries) @ np.abs(vectors).T
    assert (np.abs(products - queries.astype(float) @ vectors.T) <= bound).all()


def test_products_do_not_depend_on_threads_or_chunks():
    """The same bits from one thread, from three, and one or four rows at a time."""
    codes, scales = stored(1289)
    queries = normal(5, 1289)
    whole = block_products(queries, codes, scales, BLOCK, num_threads=1)
    for threads in (2, 3, 20):
        other = block_products(queries, codes, scales, BLOCK, threads)
        np.testing.assert_array_equal(other, whole)
    for rows in (1, 4, 7):
        parts = [
            block_products(queries, codes[i : i + rows], scales[i : i + rows], BLOCK, 2)
            for i in range(0, len(codes), rows)
        ]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_a_product_does_not_depend_on_the_other_queries():
    """Asked alone, a query gets the same bits as among others."""
    codes, scales = stored(1289)
    queries = normal(5, 1289)
    together = block_products(queries, codes, scales, BLOCK, num_threads=1)
    for query, products in zip(queries, together, strict=True):
        alone = block_products(query[None], codes, scales, BLOCK, num_threads=1)
        np.testing.assert_array_equal(alone[0], products)


def test_zeros_give_zero_and_what_is_not_finite_stays_so():
    """A zero query or vector has products of exactly 0; NaN is not lost."""
    codes, scales = stored(600)
    scales[3] = 0
    queries = normal(3, 600)
    queries[0] = 0
    queries[2, 599] = np.nan
    products = block_products(queries, codes, scales, BLOCK, num_threads=2)
    assert (products[0] == 0).all()
    assert products[1, 3] == 0
    assert np.isnan(products[2]).all()


@pytest.mark.parametrize("num_bytes", [1, SIGN_BYTES, 3 * SIGN_BYTES + 7])
def test_sign_products_equal_those_of_unpacked_signs(num_bytes):
    """Within 1e-5 of the sum of absolute terms; the same bits however divided."""
    bits = np.random.default_rng(0).integers(0, 256, (11, num_bytes), dtype=np.uint8)
    queries = normal(5, 8 * num_bytes)
    queries[3] = 0
    signs = 2.0 * np.unpackbits(bits, axis=1) - 1
    products = sign_products(queries, bits, num_threads=1)
    bound = 1e-5 * np.abs(queries).sum(1, keepdims=True)
    assert (np.abs(products - queries.astype(float) @ signs.T) <= bound).all()
    np.testing.assert_array_equal(sign_products(queries, bits, 2), products)
    alone = np.stack([sign_products(queries[1:2], row[None], 1)[0] for row in bits])
    np.testing.assert_array_equal(alone[:, 0], products[1])


@pytest.mark.parametrize("num_params", [1, 256, 1289])
def test_codes_are_the_rounded_quotients_by_each_blocks_scale(num_params):
    """The same as numpy says block by block, from any number of threads."""
    values = normal(5, num_params) * np.float32([[1e-6], [1], [1e30], [0], [1e-3]])
    num_blocks = -(-num_params // BLOCK)
    for threads in (1, 3):
        codes = np.empty((5, num_params), np.int8)
        scales = np.empty((5, num_blocks), np.float32)
        encode_blocks(values, codes, scales, BLOCK, threads)
        for number in range(num_blocks):
            part = slice(number * BLOCK, (number + 1) * BLOCK)
            expected = np.abs(values[:, part]).max(1) / np.float32(127)
            np.testing.assert_array_equal(scales[:, number], expected)
            quotients = values[:, part] / np.where(expected > 0, expected, 1)[:, None]
            np.testing.assert_array_equal(codes[:, part], np.rint(quotients))


def test_a_scale_says_that_a_block_was_not_finite():
    """NaN or infinity in a gradient is not stored as an ordinary number."""
    values = normal(3, 300)
    values[1, 5], values[2, 299] = np.nan, -np.inf
    codes, scales = np.empty((3, 300), np.int8), np.empty((3, 2), np.float32)
    encode_blocks(values, codes, scales, BLOCK, 1)
    finite = [[True, True], [False, True], [True, False]]
    np.testing.assert_array_equal(np.isfinite(scales), finite)
