"""Products: what `out=` may be, factors of integers, norms of matrices without elements."""

from __future__ import annotations

import pytest

SETUP = """
a, b, v = torch.ones(2, 2), torch.ones(1, 2, 2), torch.ones(2)
i, j, k = a.long(), b.long(), v.long()
def other(*shape): return torch.empty(shape, dtype=torch.float64)
"""


@pytest.mark.parametrize(
    "call",
    [
        "torch.mm(a, a, out=other(2, 2))",
        "torch.bmm(b, b, out=other(1, 2, 2))",
        "torch.mv(a, v, out=other(2))",
        "torch.dot(v, v, out=other())",
        "torch.vdot(v, v, out=other())",
        "torch.matmul(a, v, out=other(2))",
        "torch.matmul(b, a, out=other(1, 2, 2))",
        "torch.addmm(a, a, a, out=other(2, 2))",
        "torch.addmv(v, a, v, out=other(2))",
        "torch.baddbmm(b, b, b, out=other(1, 2, 2))",
        "torch.addbmm(a, b, b, out=other(2, 2))",
        "torch.outer(v, v, out=other(2, 2))",
    ],
)
def test_out_of_another_dtype(agrees, call):
    agrees(call, SETUP)


@pytest.mark.parametrize("factors", ["beta=0.6, alpha=2.5", "alpha=2.5", "beta=1.5", "beta=-1.5, alpha=3"])
@pytest.mark.parametrize(
    "call", ["addmm(i, i, i", "addmv(k, i, k", "baddbmm(j, j, j", "addbmm(i, j, j", "addr(i, k, k", "addmm(a, a, a"]
)
def test_factors_of_integers(agrees, call, factors):
    agrees(f"torch.{call}, {factors})", SETUP)


@pytest.mark.parametrize("order", ["1", "-1", "2", "float('inf')", "-float('inf')", "'fro'", "'nuc'"])
@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (2, 0, 3)])
def test_norms_of_matrices_without_elements(agrees, order, shape):
    agrees(f"torch.linalg.matrix_norm(torch.empty{shape}, {order})", SETUP)
    agrees(f"torch.linalg.matrix_norm(torch.empty{shape}, {order}, keepdim=True)", SETUP)
