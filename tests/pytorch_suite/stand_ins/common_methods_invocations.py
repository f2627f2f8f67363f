"""The database of operators, empty: it is compared with PyTorch's elsewhere."""

from __future__ import annotations

from typing import Any

import torch

from .permissive import guess

op_db: list = []
unary_ufuncs = binary_ufuncs = reduction_ops = shape_funcs = spectral_funcs = sparse_unary_ufuncs = op_db
sparse_csr_unary_ufuncs = sparse_reduction_ops = sparse_masked_reduction_ops = reference_masked_ops = op_db
ops_and_refs = python_ref_db = foreach_unary_op_db = foreach_binary_op_db = foreach_pointwise_op_db = op_db
foreach_reduce_op_db = foreach_other_op_db = op_db


def mask_not_all_zeros(shape: tuple) -> Any:
    """A random mask with at least one element set."""
    while True:
        result = torch.randn(shape).gt(0)
        if result.any():
            return result


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
