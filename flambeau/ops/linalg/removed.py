"""Names that PyTorch has removed: they raise an error that names the replacement."""

from __future__ import annotations

from typing import Any, NoReturn

from ..machinery.declare import composite

_GONE = "This function was deprecated since version 1.9 and is now removed."


def _gone(name: str, advice: str) -> NoReturn:
    raise RuntimeError(f"{_GONE} `torch.{name}` {advice}")


@composite
def solve(input: Any, A: Any, *, out: Any = None) -> NoReturn:
    """Removed: use linalg.solve."""
    _gone("solve", "is replaced by `torch.linalg.solve`, whose arguments are reversed: torch.linalg.solve(A, B).")


@composite
def lstsq(input: Any, A: Any, *, out: Any = None) -> NoReturn:
    """Removed: use linalg.lstsq."""
    _gone("lstsq", "is replaced by `torch.linalg.lstsq`, whose arguments are reversed: torch.linalg.lstsq(A, B).")


@composite
def eig(self: Any, eigenvectors: bool = False, *, e: Any = None, v: Any = None) -> NoReturn:
    """Removed: use linalg.eig or linalg.eigvals."""
    _gone("eig", "is replaced by `torch.linalg.eig` and `torch.linalg.eigvals`, which return complex tensors.")


@composite
def symeig(input: Any, eigenvectors: bool = False, upper: bool = True, *, out: Any = None) -> NoReturn:
    """Removed: use linalg.eigh or linalg.eigvalsh."""
    _gone("symeig", "is replaced by `torch.linalg.eigh` and `torch.linalg.eigvalsh`, with UPLO='U' if upper else 'L'.")


@composite(method=False)
def matrix_rank(input: Any, tol: Any = None, symmetric: bool = False, *, out: Any = None) -> NoReturn:
    """Removed: use linalg.matrix_rank."""
    _gone("matrix_rank", "is replaced by `torch.linalg.matrix_rank`, where 'symmetric' is called 'hermitian'.")
