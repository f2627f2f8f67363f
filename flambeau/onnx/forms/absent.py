"""Operators without an ONNX equivalent. Composites and formulas are not listed: they are decomposed, and the missing parts reported."""

from __future__ import annotations

from ..registry import absent, aten

absent(
    "ONNX has no linear solvers and decompositions", aten.linalg_ldl_solve, aten.linalg_ldl_factor_ex, aten.geqrf, aten.cholesky_solve,
)  # fmt: skip
absent("ONNX has no complex numbers", aten.view_as_real, aten.view_as_complex)
absent(
    "ONNX has no sparse tensors that are computed", aten.sparse_coo_tensor, aten.sparse_csc_tensor, aten.sparse_csr_tensor,
)  # fmt: skip
absent(
    "ONNX draws no random numbers of this kind", aten.binomial, aten.log_normal_, aten.random_, aten.uniform_, aten.poisson,
    aten.exponential_, aten.cauchy_, aten.geometric_, aten.randperm, aten.rrelu_, aten.native_dropout, aten._sample_dirichlet,
    aten._standard_gamma, aten.feature_dropout_, aten.alpha_dropout_, aten.feature_alpha_dropout_,
)  # fmt: skip
absent(
    "it is part of a gradient; export the model, not its training step", aten._dirichlet_grad, aten._softmax_backward_data,
    aten._log_softmax_backward_data, aten._standard_gamma_grad,
)  # fmt: skip
absent(
    "it has no form yet", aten.index_reduce, aten.frexp, aten.mode, aten.renorm, aten.diagonal_scatter, aten.as_strided_scatter,
    aten._scaled_mm, aten.unique_consecutive,
)  # fmt: skip
absent("torchlib's function overflows where the result does not", aten.special_erfcx)
absent(
    "it changes its statistics; the layer that hides them has a form", aten.native_batch_norm, aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_functional,
)  # fmt: skip
absent("torchlib's function gives nan for 0; the formula is written instead", aten.sinc)
absent("ONNX has no tensors that change their size", aten.resize_, aten.resize_as_)
