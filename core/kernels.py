"""Inner products with compressed vectors, decoded in the cache and never in memory.

Products are summed in float32 within a block of coordinates and in float64 across
blocks, always in the same order: a product depends neither on the other rows and
queries nor on the threads. Numba compiles each kernel at its first call, in one or two
seconds. What the codes mean and where they lie is `core.index`'s and `core.sketch`'s
business.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba import njit

SIGN_BYTES = 512  # of eight signs each, decoded at a time


def block_products(
    queries: np.ndarray,
    codes: np.ndarray,
    scales: np.ndarray,
    block: int,
    num_threads: int,
) -> np.ndarray:
    """Return inner products (Q, N) of queries with vectors in 8-bit blocks.

    A vector is its codes, each times the scale of its block.

    Args:
        queries: Shape (Q, P), float32, contiguous.
        codes: Shape (N, P), int8, contiguous; may be a memory map.
        scales: Shape (N, ceil(P / block)), float32, contiguous.
        block: Coordinates that share a scale.
        num_threads: Threads that divide the rows among them.
    """
    # Compiled code would read past the end of an array.
    num_params = codes.shape[1]
    assert queries.shape[1] == num_params
    assert scales.shape == (len(codes), -(-num_params // block))
    products = np.zeros((len(codes), len(queries)))

    def add(rows: slice) -> None:
        _add_block_products(queries, codes[rows], scales[rows], block, products[rows])

    _divide(add, len(codes), num_threads)
    return products.T


def encode_blocks(
    values: np.ndarray,
    codes: np.ndarray,
    scales: np.ndarray,
    block: int,
    num_threads: int,
) -> None:
    """Write vectors as codes from -127 to 127, each block with its own scale.

    Args:
        values: Shape (N, P), float32, contiguous.
        codes: Where the codes go, shape (N, P), int8; may be a memory map.
        scales: Where the scales go, shape (N, ceil(P / block)), float32.
        block: Coordinates that share a scale, the largest magnitude over 127.
        num_threads: Threads that divide the rows among them.
    """
    num_params = values.shape[1]
    assert codes.shape == values.shape
    assert scales.shape == (len(values), -(-num_params // block))

    def encode(rows: slice) -> None:
        _encode_blocks(values[rows], codes[rows], scales[rows], block)

    _divide(encode, len(values), num_threads)


def sign_products(
    queries: np.ndarray, bits: np.ndarray, num_threads: int
) -> np.ndarray:
    """Return inner products (Q, N) of queries with vectors of signs.

    Args:
        queries: Shape (Q, k), float32.
        bits: Shape (N, k / 8), uint8, as `np.packbits` packs them; 1 is positive.
        num_threads: Threads that divide the rows among them.
    """
    assert queries.shape[1] == 8 * bits.shape[1]
    products = np.zeros((len(bits), len(queries)))

    def add(rows: slice) -> None:
        _add_sign_products(queries, bits[rows], products[rows])

    _divide(add, len(bits), num_threads)
    return products.T


def _divide(add: Callable[[slice], None], num_rows: int, num_threads: int) -> None:
    """Call `add` once per thread, with its share of the rows.

    Plain threads around a kernel that gives up the interpreter's lock: Numba's own
    `prange` would bring a second OpenMP beside torch's or, where there is none, a
    thread pool that ends the process when two threads call it at once.
    """
    bounds = np.linspace(0, num_rows, num_threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(add, (slice(*bound) for bound in pairwise(bounds))))


@njit(nogil=True)
def _add_block_products(queries, codes, scales, block, products):
    """Add the inner products of all rows and queries to `products` (N, Q).

    One block of all rows at a time: that part of the queries stays in the cache, and
    the codes are read from memory once.
    """
    num_params = codes.shape[1]
    values = np.empty(block, np.float32)
    for number in range(scales.shape[1]):
        first = number * block
        stop = min(first + block, num_params)
        for row in range(len(codes)):
            decoded = values[: stop - first]
            _decode(codes[row, first:stop], decoded)
            scale = np.float64(scales[row, number])
            for query in range(len(queries)):
                products[row, query] += scale * _dot(
                    decoded, queries[query, first:stop]
                )


@njit(nogil=True)
def _encode_blocks(values, codes, scales, block):
    num_params = values.shape[1]
    for row in range(len(values)):
        for number in range(scales.shape[1]):
            first = number * block
            stop = min(first + block, num_params)
            part = values[row, first:stop]
            scale = _largest(part) / np.float32(127)
            scales[row, number] = scale
            _round(part, scale if scale != 0 else np.float32(1), codes[row, first:stop])


@njit(nogil=True)
def _largest(values):
    """Return the largest magnitude; NaN if there is one.

    Without its sign bit a float32 is ordered as an integer, NaN above all; a maximum of
    integers is taken in vectors.
    """
    largest = np.zeros(1, np.int32)
    top = np.int32(0)
    bits = values.view(np.int32)
    for i in range(len(bits)):
        top = max(top, bits[i] & np.int32(0x7FFFFFFF))
    largest[0] = top
    return largest.view(np.float32)[0]


@njit(nogil=True)
def _round(values, scale, codes):
    for i in range(len(values)):
        codes[i] = np.int8(np.rint(values[i] / scale))


@njit(nogil=True)
def _add_sign_products(queries, bits, products):
    """Add the inner products of all rows and queries to `products` (N, Q)."""
    values = np.empty(8 * SIGN_BYTES, np.float32)
    for first in range(0, bits.shape[1], SIGN_BYTES):
        stop = min(first + SIGN_BYTES, bits.shape[1])
        for row in range(len(bits)):
            signs = values[: 8 * (stop - first)]
            _unpack(bits[row, first:stop], signs)
            for query in range(len(queries)):
                products[row, query] += np.float64(
                    _dot(signs, queries[query, 8 * first : 8 * stop])
                )


@njit(nogil=True)
def _unpack(bits, signs):
    for i in range(len(bits)):
        byte = np.int32(bits[i])
        for k in range(8):
            signs[8 * i + k] = np.float32(2 * ((byte >> (7 - k)) & 1) - 1)


@njit(nogil=True)
def _decode(codes, values):
    for i in range(len(codes)):
        values[i] = np.float32(codes[i])


# Only what lets the compiler add in vectors: a query that is not finite stays so.
@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(a, b):
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total
