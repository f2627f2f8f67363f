"""Corners of linear algebra in which PyTorch's answer, or its kind of error, is not the obvious one."""

from __future__ import annotations

import pytest

SETUP = """
a, z = torch.ones(2, 3), torch.arange(9.0).reshape(3, 3).to(torch.complex128) * (1 + 2j) + torch.eye(3)
one, v, i32 = torch.eye(2), torch.ones(2), torch.int32
singular = torch.diag(torch.tensor([1.0, 1.0, 0.0]))
steps = torch.diag(torch.tensor([2.0, 1.0, 1e-9]))
right, half = torch.full((3, 1), 2.0), torch.tensor([0.1, 0.7, 1.3]).half()
def double(*shape): return torch.empty(shape, dtype=torch.float64)
"""


@pytest.mark.parametrize(
    "call",
    [
        "torch.einsum(a, [1, 40], a.t(), [40, 14])",  # numbers from 26 on are other letters than those below
        "torch.einsum(a, [1, 27])",
        "torch.einsum(a, [27, 1])",
        "torch.einsum(a, [52, 1])",
        "torch.einsum('fd,bd->bf', a, torch.ones(4, 3))",
        "torch.einsum('bxi,byi->byx', torch.ones(5, 2, 3), torch.ones(5, 4, 3))",
        "torch.einsum('. ..', a)",
        "torch.einsum('... ...', v)",
        "torch.einsum('ij->......', a)",
        "torch.einsum('a ,1', v, v)",
        "torch.einsum('b,aa', v, a)",
        "torch.einsum('i', 3)",
        "torch.einsum('', [])",
    ],
)
def test_einsum(agrees, call):
    agrees(call, SETUP)


@pytest.mark.parametrize(
    "call",
    [
        "torch.matmul(torch.ones(2, 3, 0), torch.ones(0))",
        "torch.matmul(torch.ones(2, 0, 0), torch.ones(0))",
        "torch.addr(torch.ones(3, 3).half(), half, half)",
        "torch.addr(torch.ones(3, 3).half(), half, half, beta=0.5, alpha=2)",
        "torch.addr(one.int(), v.int(), v.int(), alpha=3, beta=2)",
        "torch.addr(one.bool(), v.int(), v.bool(), alpha=3, beta=2)",
        "torch.addr(one.bool(), v.bool(), v.bool(), alpha=False)",
        "torch.addr(one, v, v, alpha=True)",
        "torch.addr(one.int(), v.int(), v.int(), beta=1.5)",
        "torch.addr(one.int(), v.int(), v.int(), beta=0)",
        "torch.addmv(v.double(), one.to(torch.complex128), v.to(torch.complex128))",
        "torch.addbmm(one.half(), torch.ones(2, 2, 2), torch.ones(2, 2, 2))",
    ],
)
def test_products(agrees, call):
    agrees(call, SETUP)


@pytest.mark.parametrize("order", ["1", "-1", "2", "-2", "float('inf')", "-float('inf')", "'fro'", "'nuc'", "None"])
def test_condition_of_a_singular_matrix(agrees, order):
    agrees(f"torch.linalg.cond(singular, {order})", SETUP)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_old_triangular_solve_does_not_conjugate(agrees, upper, transpose):
    agrees(f"torch.triangular_solve(z[:, :1], z, {upper}, {transpose})[0]", SETUP)


@pytest.mark.parametrize("driver", ["gelsd", "gelss"])  # PyTorch's "gelsy" varies from call to call
@pytest.mark.parametrize("rcond", [-2.0, 0.0, 0.3, 1.0])
def test_tolerance_of_least_squares(agrees, driver, rcond):
    call = f"torch.linalg.lstsq(steps, right, rcond={rcond}, driver={driver!r})"
    agrees(f"(lambda r: (r.solution, r.rank))({call})", SETUP)


@pytest.mark.parametrize(
    "call",
    [
        "torch.linalg.lstsq(torch.ones(1, 1, 1), torch.ones(3, 1, 1)).rank",
        "torch.linalg.lstsq(torch.ones(2, 2, 2), torch.ones(3, 2, 1))",
        "torch.linalg.lstsq(torch.ones(2, 2, 2), torch.ones(3, 2))",
        "torch.linalg.lstsq(torch.ones(1, 1, 1), torch.ones(1, 2)).solution",
        "torch.linalg.lstsq(torch.ones(2, 3, 2), torch.ones(2, 3, 0)).rank",
        "torch.linalg.lstsq(torch.zeros(3, 2), torch.ones(3, 1), driver='gels').residuals.shape",
        "torch.linalg.eigh(torch.full((1, 1), float('nan')))",
        "torch.linalg.eigvalsh(torch.full((1, 1), float('inf'), dtype=torch.complex64))",
        "torch.cholesky_inverse(torch.empty(2, 0, 0))",
        "torch.cholesky_inverse(torch.empty(0, 2, 2))",
        "torch.linalg.pinv(v)",
        "torch.linalg.pinv(one.int())",
        "torch.linalg.vector_norm(v, 1 + 2j)",
        "torch.linalg.matrix_norm(one, 1 + 2j)",
        "torch.linalg.lu_solve(one, torch.tensor([0, 1], dtype=i32), one)",
        "torch.linalg.lu_solve(one, torch.tensor([3, 1], dtype=i32), one)",
        "torch.linalg.ldl_solve(one, torch.tensor([0, 1], dtype=i32), one)",
        "torch.linalg.cross(steps, singular, out=steps)",
        "torch.nuclear_norm(one, out=torch.empty(()))",
        "torch.frobenius_norm(one, dim=(0, 1), out=torch.empty(()))",
    ],
)
def test_arguments(agrees, call):
    agrees(call, SETUP)


def test_pivots_of_another_shape():
    import flambeau

    packed, pivots = flambeau.linalg.lu_factor(flambeau.rand(2, 3, 3) + 2 * flambeau.eye(3))
    for wrong in (pivots[..., :-1], pivots[0], flambeau.empty(0, dtype=flambeau.int32)):
        with pytest.raises(ValueError, match="Expected LU_pivots to have shape"):
            flambeau.lu_unpack(packed, wrong)


@pytest.mark.parametrize(
    "call",
    [
        "torch.linalg.eigh(one, out=(double(2), torch.empty(2, 2)))",
        "torch.linalg.svd(one, out=(double(2, 2), torch.empty(2), torch.empty(2, 2)))",
        "torch.linalg.qr(one, out=(double(2, 2), torch.empty(2, 2)))",
        "torch.linalg.slogdet(one, out=(double(), double()))",
        "torch.linalg.lu_factor(one, out=(double(2, 2), torch.empty(2, dtype=i32)))",
        "torch.linalg.lu(one, out=(double(2, 2), torch.empty(2, 2), torch.empty(2, 2)))",
        "torch.linalg.inv_ex(one, out=(double(2, 2), torch.empty((), dtype=i32)))",
        "torch.linalg.inv_ex(one, out=(torch.empty(2, 2), torch.empty((), dtype=torch.int64)))",
        "torch.linalg.cholesky_ex(one, out=(double(2, 2), torch.empty((), dtype=i32)))",
        "torch.linalg.ldl_factor(one, out=(double(2, 2), torch.empty(2, dtype=i32)))",
        "torch.linalg.solve_ex(one, one, out=(double(2, 2), torch.empty((), dtype=i32)))",
        "torch.inverse(one, out=double(2, 2))",
        "torch.triangular_solve(one, one, out=(double(2, 2), torch.empty(2, 2)))",
        "torch.lu_unpack(one, torch.tensor([1, 2], dtype=i32), out=(double(2, 2), torch.empty(2, 2), torch.empty(2, 2)))",
    ],
)
def test_out_of_another_dtype(agrees, call):
    agrees(call, SETUP)


def test_out_that_cannot_hold_the_result_is_named():
    import flambeau as fl

    whole = fl.empty(2, 2, dtype=fl.int32)
    with pytest.raises(
        RuntimeError, match="Expected result to be safely castable from Float dtype, but got result with dtype Int"
    ):
        fl.linalg.pinv(fl.eye(2), out=whole)
    with pytest.raises(RuntimeError, match="Expected eigenvalues to be safely castable from ComplexFloat dtype"):
        fl.linalg.eig(fl.eye(2), out=(fl.empty(2), fl.empty(2, 2)))


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("diagonal", [2**63 - 1, -(2**63)])
def test_triangles_far_outside_a_complex_matrix(agrees, name, diagonal):
    agrees(f"z.{name}({diagonal})", SETUP)


def test_inverse_from_a_factor_with_a_zero_on_its_diagonal():
    import flambeau as fl

    factors = fl.stack([fl.eye(2), fl.diag(fl.tensor([1.0, 0.0]))])
    with pytest.raises(fl.linalg.LinAlgError, match=r"\(Batch element 1\): The diagonal element 2 is zero"):
        fl.cholesky_inverse(factors)


def test_least_squares_by_pivoted_qr_cuts_what_is_small():
    import flambeau as fl

    steps, right = fl.diag(fl.tensor([2.0, 1.0, 1e-9])), fl.full((3, 1), 2.0)
    for rcond, rank, solution in ((0.0, 3, [1.0, 2.0, 2e9]), (0.3, 2, [1.0, 2.0, 0.0]), (1.0, 1, [1.0, 0.0, 0.0])):
        found = fl.linalg.lstsq(steps, right, rcond=rcond, driver="gelsy")
        assert int(found.rank) == rank
        assert found.solution.flatten().tolist() == pytest.approx(solution)
