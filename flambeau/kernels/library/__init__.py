"""Loop kernels: what is neither a pointwise formula nor a plain reduction.

Buffers are contiguous unless a kernel says otherwise. A tensor reduced along one dimension is seen as
(outer, n, inner): `n` is the dimension, `inner` the product of those after it; kernels called `*_rows` have inner = 1.
"""
