"""Sums of products of float32 queries with codes of 8, 4 or 1 bit, as LLVM code.

Numba's own loops over bytes that end in float32 are turned into vectors of eight or
into none. Here the vectors are spelled out, in LLVM's portable form: it becomes
AVX-512, AVX2 or NEON by itself. A sum is always taken in the same order, however many
queries are multiplied at once. How codes lie in memory is `core.index.kernels`'
business.
"""

from functools import cache

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
ROWS, QUERIES = 4, 4  # that are multiplied at once: registers hold all their sums

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_BYTES = ir.VectorType(ir.IntType(8), LANES)


@cache
def make_dot(bits: int, num_rows: int, num_queries: int):
    """Return dot(codes, row, byte, width, queries, query, place) for compiled code.

    Of `num_rows` rows of `codes` from `row` on, `width` bytes from `byte` on are
    multiplied with `num_queries` rows of `queries` from `query` on: the k-th field of
    the j-th byte with the number at `place + k width + j`. 8 bits are an int8, 4 bits a
    code plus 8; one bit counts as 1 where it is clear and as 0 where it is set, because
    LLVM makes one masked addition of that and two instructions of its opposite. Both
    arrays are contiguous, uint8 and float32; `width` is a multiple of `LANES`. The sums
    come as a tuple of float32, all queries of a row together.
    """

    @intrinsic
    def dot(typingctx, codes, row, byte, width, queries, query, place):
        count = num_rows * num_queries
        arguments = (codes, row, byte, width, queries, query, place)
        signature = types.UniTuple(types.float32, count)(*arguments)

        def generate(context, builder, signature, values):
            codes, queries = (
                context.make_array(signature.args[i])(context, builder, values[i])
                for i in (0, 4)
            )
            row, byte, width, query, place = (
                context.cast(builder, values[i], signature.args[i], types.intp)
                for i in (1, 2, 3, 5, 6)
            )
            code_starts = _starts(builder, codes, row, byte, num_rows)
            query_starts = _starts(builder, queries, query, place, num_queries)
            sums = _sums(builder, code_starts, query_starts, width, bits)
            return context.make_tuple(builder, signature.return_type, sums)

        return signature, generate

    return dot


def _starts(builder, array, row, column, count):
    """Emit the addresses of an element in consecutive rows."""
    length, integer = builder.extract_value(array.shape, 1), row.type
    rows = [builder.add(row, integer(i)) for i in range(count)]
    places = [builder.add(builder.mul(one, length), column) for one in rows]
    return [builder.gep(array.data, [place]) for place in places]


def _sums(builder, codes, queries, width, bits):
    """Emit the loop over all bytes; return one sum per pair of addresses."""
    zero = ir.Constant(_FLOATS, [0.0] * LANES)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in codes for _ in queries]
    integer = width.type
    with cgutils.for_range_slice(
        builder, integer(0), width, integer(LANES), integer
    ) as (byte, _):
        loaded = [_load(builder, code, byte, _BYTES) for code in codes]
        for k in range(8 // bits):
            place = builder.add(byte, builder.mul(width, integer(k)))
            fields = [_field(builder, code, k, bits) for code in loaded]
            asked = [_load(builder, query, place, _FLOATS) for query in queries]
            pairs = [(field, query) for field in fields for query in asked]
            for total, (field, query) in zip(sums, pairs, strict=True):
                old = builder.load(total)
                builder.store(_added(builder, old, field, query, bits), total)
    return [_across(builder, builder.load(total)) for total in sums]


def _load(builder, base, index, kind):
    """Emit the load of a vector that begins at any element."""
    pointer = builder.bitcast(builder.gep(base, [index]), kind.as_pointer())
    return builder.load(pointer, align=1)


def _field(builder, code, k, bits):
    """Emit the k-th field of every byte in float32; of one bit, whether it is clear."""
    if bits == 1:
        bit = builder.and_(code, ir.Constant(_BYTES, [1 << k] * LANES))
        return builder.icmp_unsigned("==", bit, ir.Constant(_BYTES, [0] * LANES))
    if bits == 4 and k == 0:
        code = builder.and_(code, ir.Constant(_BYTES, [15] * LANES))
    elif bits == 4:
        code = builder.lshr(code, ir.Constant(_BYTES, [4] * LANES))
    if bits == 4:
        code = builder.sub(code, ir.Constant(_BYTES, [8] * LANES))
    return builder.sitofp(builder.sext(code, _INTEGERS), _FLOATS)


def _added(builder, old, field, query, bits):
    """Emit the sum with another product; one bit adds the query or leaves it out."""
    if bits == 1:
        return builder.select(field, builder.fadd(old, query), old)
    # One rounding where the processor can, two elsewhere.
    product = builder.fmul(field, query, flags=("contract",))
    return builder.fadd(old, product, flags=("contract",))


def _across(builder, total):
    """Emit the sum over the lanes."""
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        kind = ir.VectorType(ir.IntType(32), lanes)
        low = ir.Constant(kind, list(range(lanes)))
        high = ir.Constant(kind, list(range(lanes, 2 * lanes)))
        total = builder.fadd(
            builder.shuffle_vector(total, total, low),
            builder.shuffle_vector(total, total, high),
        )
    return builder.extract_element(total, ir.IntType(32)(0))
