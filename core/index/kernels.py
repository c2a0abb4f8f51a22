"""Inner products with compressed vectors, decoded in the cache and never in memory.

Products are summed in float32 within a block of coordinates and in float64 across
blocks, always in the same order: a product depends neither on the other rows and
queries nor on the threads. Numba compiles a kernel at its first call, in one or two
seconds. Where the codes come from and lie is `core.index.full`'s and
`core.index.sketch`'s business.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
from numba import njit

from core.index.dots import LANES, QUERIES, ROWS, make_dot

CACHE = 1 << 18  # bytes of queries that are used for all rows before the next


def block_products(
    queries: np.ndarray,
    codes: np.ndarray,
    scales: np.ndarray,
    block: int,
    bits: int,
    num_threads: int,
) -> np.ndarray:
    """Return inner products (Q, N) of queries with vectors packed in blocks.

    A vector is its codes, each times the scale of its block. A block of n coordinates
    takes w = ceil(n bits / 8) bytes: 8 bits are an int8; of less, coordinate k w + j is
    the k-th field of byte j from the low end, so that neighbours are unpacked at once.
    4 bits hold a code plus 8; one bit is 1 where the code is +1, 0 where it is -1.

    Args:
        queries: Shape (Q, P), float32, contiguous.
        codes: Shape (N, `packed_bytes`), uint8, contiguous; may be a memory map. A
            whole block takes a multiple of 16 bytes.
        scales: Shape (N, ceil(P / block)), float32, contiguous.
        block: Coordinates that share a scale.
        bits: 8, 4 or 1.
        num_threads: Threads that divide the rows among them.
    """
    # Compiled code would read past the end of an array.
    num_params = queries.shape[1]
    assert codes.shape[1] == packed_bytes(num_params, block, bits)
    assert scales.shape == (len(codes), -(-num_params // block))
    products = np.zeros((len(codes), len(queries)))

    def add(rows: slice) -> None:
        _add_block_products(
            queries, codes[rows], scales[rows], block, bits, products[rows]
        )

    _divide(add, len(codes), num_threads)
    return products.T


def encode_blocks(
    values: np.ndarray,
    codes: np.ndarray,
    scales: np.ndarray,
    block: int,
    bits: int,
    num_threads: int,
) -> None:
    """Pack vectors as `block_products` reads them, each block with its own scale.

    In 8 and 4 bits the largest magnitude of a block gets the largest code, 127 or 7,
    and a coordinate is off by at most half the scale. One bit keeps the sign; its scale
    |v|^2 / |v|_1 makes the packed block's component along v equal to v itself, so that
    inner products keep their size.

    Args:
        values: Shape (N, P), float32, contiguous.
        codes: Where the codes go, shape (N, `packed_bytes`), uint8; may be a memory
            map.
        scales: Where the scales go, shape (N, ceil(P / block)), float32.
        block: Coordinates that share a scale.
        bits: 8, 4 or 1.
        num_threads: Threads that divide the rows among them.
    """
    num_params = values.shape[1]
    assert codes.shape == (len(values), packed_bytes(num_params, block, bits))
    assert scales.shape == (len(values), -(-num_params // block))

    def encode(rows: slice) -> None:
        _encode_blocks(values[rows], codes[rows], scales[rows], block, bits)

    _divide(encode, len(values), num_threads)


def add_to_buckets(
    vectors: np.ndarray, buckets: np.ndarray, factors: np.ndarray, sums: np.ndarray
) -> None:
    """Set each bucket to the sum of its coordinates times their factors.

    Reading vectors in order and adding to short sums is several times faster than
    gathering each bucket's coordinates from all over a vector.

    Args:
        vectors: Shape (N, P), float32, contiguous.
        buckets: Bucket of each coordinate, below k, shape (P,), int32.
        factors: Shape (P,), float32.
        sums: Where the sums go, shape (N, k), float32.
    """
    assert buckets.shape == factors.shape == vectors.shape[1:]
    assert len(sums) == len(vectors)
    _add_to_buckets(vectors, buckets, factors, sums)


def packed_bytes(num_params: int, block: int, bits: int) -> int:
    """Return the bytes of one packed vector of P coordinates."""
    full, rest = divmod(num_params, block)
    return full * (block * bits // 8) + -(-rest * bits // 8)


def _divide(add: Callable[[slice], None], num_rows: int, num_threads: int) -> None:
    """Call `add` once per thread, with its share of the rows.

    Plain threads around a kernel that gives up the interpreter's lock: Numba's own
    `prange` would bring a second OpenMP beside torch's or, where there is none, a
    thread pool that ends the process when two threads call it at once.
    """
    if num_threads == 1:
        add(slice(0, num_rows))
        return
    bounds = np.linspace(0, num_rows, num_threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(add, (slice(*bound) for bound in pairwise(bounds))))


def _add_block_products(queries, codes, scales, block, bits, products):
    """Add the inner products of all rows and queries to `products` (N, Q)."""
    num_params, kernel = queries.shape[1], _products_kernel(bits)
    full, rest = divmod(num_params, block)
    kernel(queries, codes, np.ascontiguousarray(scales[:, :full]), block, products)
    if rest:
        last = codes[:, full * (block * bits // 8) :]
        ends, last = _padded(queries[:, full * block :], last, bits)
        last_scales = np.ascontiguousarray(scales[:, full:])
        kernel(ends, last, last_scales, ends.shape[1], products)


def _padded(queries, codes, bits):
    """Return a last, short block with zeros added up to whole vectors."""
    width, fields = codes.shape[1], 8 // bits
    padded_width = -(-width // LANES) * LANES
    padded_codes = np.zeros((len(codes), padded_width), np.uint8)
    padded_codes[:, :width] = codes
    spread = np.zeros((len(queries), fields, padded_width), np.float32)
    for k in range(fields):
        part = queries[:, k * width : (k + 1) * width]
        spread[:, k, : part.shape[1]] = part
    return spread.reshape(len(queries), -1), padded_codes


@cache
def _products_kernel(bits: int):
    """Return the compiled function that adds the products with whole blocks.

    A group of blocks of all rows at a time: that part of the queries stays in the
    cache, and the codes are read from memory once, many neighbours in a row.
    """

    def adder(num_rows, num_queries):
        dot = make_dot(bits, num_rows, num_queries)

        @njit(nogil=True)
        def add(at, block, codes, queries, scales, totals, products):
            row, number, query = at
            width = block * bits // 8
            place = number * block
            sums = dot(codes, row, number * width, width, queries, query, place)
            for r in range(num_rows):
                for q in range(num_queries):
                    value = np.float64(sums[r * num_queries + q])
                    if bits == 1:  # the sum over clear bits, which are -1
                        value = totals[number, query + q] - 2 * value
                    scale = np.float64(scales[row + r, number])
                    products[row + r, query + q] += scale * value

        return add

    many, row_by_row = adder(ROWS, QUERIES), adder(1, QUERIES)
    one_by_one, rows_alone = adder(1, 1), adder(ROWS, 1)
    dot_one = make_dot(bits, 1, 1)

    @njit(nogil=True)
    def query_totals(queries, num_blocks, block):
        width = block * bits // 8
        clear = np.zeros((1, width), np.uint8)
        totals = np.zeros((num_blocks, len(queries)), np.float32)
        for number in range(num_blocks):
            for query in range(len(queries)):
                place = number * block
                sums = dot_one(clear, 0, 0, width, queries, query, place)
                totals[number, query] = sums[0]
        return totals

    @njit(nogil=True)
    def add_products(queries, codes, scales, block, products):
        num_queries, num_blocks = len(queries), scales.shape[1]
        totals = np.zeros((num_blocks, num_queries), np.float32)
        if bits == 1:
            totals = query_totals(queries, num_blocks, block)
        group = max(1, CACHE // (4 * block * num_queries))
        tiled_rows = len(codes) - len(codes) % ROWS
        tiled = num_queries - num_queries % QUERIES
        for start in range(0, num_blocks, group):
            stop = min(start + group, num_blocks)
            for row in range(0, tiled_rows, ROWS):
                for n in range(start, stop):
                    for q in range(0, tiled, QUERIES):
                        at = row, n, q
                        many(at, block, codes, queries, scales, totals, products)
                    for q in range(tiled, num_queries):
                        at = row, n, q
                        rows_alone(at, block, codes, queries, scales, totals, products)
            for row in range(tiled_rows, len(codes)):
                for n in range(start, stop):
                    for q in range(0, tiled, QUERIES):
                        at = row, n, q
                        row_by_row(at, block, codes, queries, scales, totals, products)
                    for q in range(tiled, num_queries):
                        at = row, n, q
                        one_by_one(at, block, codes, queries, scales, totals, products)

    return add_products


@njit(nogil=True)
def _add_to_buckets(vectors, buckets, factors, sums):
    for row in range(len(vectors)):
        vector, total = vectors[row], sums[row]
        total[:] = 0
        for i in range(len(vector)):
            total[buckets[i]] += factors[i] * vector[i]


@njit(nogil=True)
def _encode_blocks(values, codes, scales, block, bits):
    num_params = values.shape[1]
    fields = np.zeros(block + 8, np.int8)
    for row in range(len(values)):
        for number in range(scales.shape[1]):
            first = number * block
            part = values[row, first : min(first + block, num_params)]
            first_byte = number * (block * bits // 8)
            width = (len(part) * bits + 7) // 8
            if bits == 1:
                scales[row, number] = _sign_scale(part)
                for i in range(len(part)):
                    fields[i] = np.int8(1) if part[i] > 0 else np.int8(-1)
            else:
                scale = _largest(part) / np.float32(2 ** (bits - 1) - 1)
                scales[row, number] = scale
                _round(part, scale if scale != 0 else np.float32(1), fields)
            fields[len(part) :] = 0
            _pack(fields, bits, codes[row, first_byte : first_byte + width])


@njit(nogil=True)
def _pack(fields, bits, codes):
    width = len(codes)
    if bits == 8:
        for i in range(width):
            codes[i] = np.uint8(fields[i])
    elif bits == 4:
        low, high = fields[:width], fields[width : 2 * width]
        for i in range(width):
            codes[i] = np.uint8(low[i] + 8) | np.uint8((high[i] + 8) << 4)
    else:
        codes[:] = 0
        for k in range(8):
            bit, part = np.uint8(1 << k), fields[k * width : (k + 1) * width]
            for i in range(width):
                codes[i] |= bit if part[i] > 0 else np.uint8(0)


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


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _sign_scale(values):
    """Return |v|^2 / |v|_1, or 0 of a zero vector."""
    squares, total = np.float32(0), np.float32(0)
    for i in range(len(values)):
        squares += values[i] * values[i]
        total += abs(values[i])
    return squares / total if total != 0 else np.float32(0)
