"""Matrix operators beyond the CPU: rules say what results look like, kernels are found by device, and the host reads values in operators."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau.core import modes
from flambeau.core.tensor import Tensor

L = fl.linalg
F = fl.nn.functional


def _matrix(*shape: int) -> Tensor:
    fl.manual_seed(0)
    return fl.randn(*shape)


def _definite(n: int = 3) -> Tensor:
    a = _matrix(2, n, n)
    return a @ a.mT + n * fl.eye(n)


SQUARE, TALL, WIDE, DEFINITE = _matrix(2, 3, 3), _matrix(2, 4, 3), _matrix(2, 3, 4), _definite()
VECTOR = _matrix(3)

CALLS: dict[str, tuple] = {
    "mm": (fl.mm, TALL[0], WIDE[0]),
    "mm transposed": (fl.mm, TALL[0].T, WIDE[0].T),
    "bmm": (fl.bmm, TALL, WIDE),
    "mv": (fl.mv, TALL[0], VECTOR),
    "dot": (fl.dot, VECTOR, VECTOR),
    "addmm": (lambda a, b, c: fl.addmm(a, b, c, beta=2, alpha=0.5), SQUARE[0], SQUARE[0], SQUARE[1]),
    "addmm row": (fl.addmm, VECTOR, TALL[0], SQUARE[0]),
    "baddbmm": (fl.baddbmm, SQUARE, SQUARE, SQUARE),
    "matmul": (fl.matmul, TALL, VECTOR),
    "linear": (F.linear, TALL, SQUARE[0], VECTOR),
    "einsum": (lambda a, b: fl.einsum("bij,bjk->bki", a, b), TALL, WIDE),
    "det": (L.det, SQUARE),
    "slogdet": (L.slogdet, SQUARE),
    "inv": (L.inv, SQUARE),
    "inv_ex": (L.inv_ex, SQUARE),
    "solve": (L.solve, SQUARE, TALL.mT),
    "solve vector": (L.solve, SQUARE, _matrix(2, 3)),
    "solve right": (lambda a, b: L.solve(a, b, left=False), SQUARE, TALL),
    "solve broadcast": (L.solve, SQUARE[0], TALL.mT),
    "cholesky": (L.cholesky, DEFINITE),
    "cholesky_ex": (lambda a: L.cholesky_ex(a, upper=True), DEFINITE),
    "cholesky_solve": (fl.cholesky_solve, TALL.mT, DEFINITE),
    "cholesky_inverse": (fl.cholesky_inverse, DEFINITE),
    "lu": (L.lu, TALL),
    "lu_factor": (L.lu_factor, WIDE),
    "lu_factor_ex": (L.lu_factor_ex, TALL),
    "ldl_factor_ex": (L.ldl_factor_ex, DEFINITE),
    "ldl_solve": (lambda a, b: L.ldl_solve(*L.ldl_factor(a), b), DEFINITE, TALL.mT),
    "lu_solve": (lambda a, b: L.lu_solve(*L.lu_factor(a), b), SQUARE, TALL.mT),
    "solve_triangular": (lambda a, b: L.solve_triangular(a, b, upper=True), SQUARE, TALL.mT),
    "qr": (L.qr, TALL),
    "qr complete": (lambda a: L.qr(a, "complete"), TALL),
    "qr r": (lambda a: L.qr(a, "r"), WIDE),
    "geqrf": (fl.geqrf, TALL),
    "svd": (L.svd, TALL),
    "svd reduced": (lambda a: L.svd(a, full_matrices=False), WIDE),
    "svdvals": (L.svdvals, TALL),
    "eigh": (L.eigh, DEFINITE),
    "eigvalsh": (L.eigvalsh, DEFINITE),
    "eig": (L.eig, SQUARE),
    "eigvals": (L.eigvals, SQUARE),
    "matrix_exp": (L.matrix_exp, SQUARE),
    "matrix_rank": (L.matrix_rank, TALL),
    "matrix_rank tensor": (lambda a, t: L.matrix_rank(a, atol=t), TALL, fl.tensor([0.1, 0.0])),
    "pinv": (L.pinv, TALL),
    "pinv tensor": (lambda a, t: L.pinv(a, atol=t), TALL, fl.tensor([0.1, 0.0])),
    "lstsq": (L.lstsq, TALL, _matrix(2, 4, 2)),
    "lstsq vector": (L.lstsq, TALL, _matrix(2, 4)),
    "lstsq gels": (lambda a, b: L.lstsq(a, b, driver="gels"), TALL, _matrix(2, 4, 2)),
    "lobpcg": (lambda a: fl.lobpcg(a, 1), _definite(6)),
}


def _parts(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize("name", CALLS)
def test_meta_results_look_like_those_of_the_cpu(name: str) -> None:
    function, *args = CALLS[name]
    there = _parts(function(*[x.to("meta") for x in args]))
    for a, b in zip(there, _parts(function(*args)), strict=True):
        assert a.device.type == "meta"
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


class _Seen(modes.Mode):
    """Lists the operators that compute, looking into composites."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def handle(self, op: Any, function: Any, args: tuple, kwargs: dict) -> Any:
        self.names.append(op.name)
        if op.kind == "composite":
            with self:
                return modes.unwatched(function)(*args, **kwargs)
        return function(*args, **kwargs)


def _seen(function: Any, *args: Any) -> list[str]:
    with _Seen() as mode:
        function(*args)
    return mode.names


def test_modes_see_where_the_host_reads_values() -> None:
    assert _seen(L.inv, SQUARE)[-2:] == ["inverse_and_info", "raise_failures"]
    assert "raise_failures" not in _seen(L.inv_ex, SQUARE)
    sparse = SQUARE[0].to_sparse()
    assert "on_host" in _seen(lambda: fl.sparse.softmax(sparse, 1))


def test_products_and_solvers_need_one_device() -> None:
    for call in (fl.mm, fl.addmm, L.solve, L.solve_triangular):
        with pytest.raises(RuntimeError, match="same device"):
            args = [SQUARE[0], SQUARE[0].to("meta")] + [SQUARE[0]] * (call is fl.addmm)
            call(*args, **({"upper": True} if call is L.solve_triangular else {}))


def test_tolerances_count_for_each_matrix() -> None:
    """Where a matrix has no absolute tolerance, the relative one is that of rounding errors."""
    singular = fl.diag(fl.tensor([1.0, 1e-3, 1e-9]))
    both = fl.stack([singular, singular])
    assert L.matrix_rank(both, atol=fl.tensor([0.1, 0.0])).tolist() == [1, 2]
    assert L.pinv(both, atol=fl.tensor([0.1, 0.0]))[:, 1, 1].tolist() == pytest.approx([0.0, 1000.0])


def test_least_squares_without_full_rank_have_no_residuals() -> None:
    a = fl.ones(4, 2, requires_grad=True)
    solution, residuals, rank, _ = L.lstsq(a, TALL[0], driver="gelsd")
    assert rank.item() == 1 and residuals.shape == (0,)
    solution.sum().backward()
    assert a.grad is not None


def test_compressed_matrices_go_where_they_are_asked_to() -> None:
    with pytest.raises(RuntimeError):  # how many columns there are depends on values
        fl.sparse_csr_tensor([0, 1], [0], [1.0], device="meta")
