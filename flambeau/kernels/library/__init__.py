"""Loop kernels: computations that are neither pointwise formulas nor plain reductions.

Buffers are contiguous unless a kernel says otherwise. A tensor reduced along one dimension has the form (outer, n, inner): `n` is the
dimension, `inner` the product of those after it; kernels called `*_rows` have inner = 1.
"""
