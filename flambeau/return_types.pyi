# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
from .core.return_types import NamedResult
from .core.tensor import Tensor

all_return_types: list[type[NamedResult]]

def pytree_register_structseq(cls: type) -> None: ...
def __getattr__(name: str) -> type[NamedResult]: ...

class aminmax(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def min(self) -> Tensor: ...
    @property
    def max(self) -> Tensor: ...

class cummax(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class cummin(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class frexp(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def mantissa(self) -> Tensor: ...
    @property
    def exponent(self) -> Tensor: ...

class geqrf(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def a(self) -> Tensor: ...
    @property
    def tau(self) -> Tensor: ...

class histogram(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def hist(self) -> Tensor: ...
    @property
    def bin_edges(self) -> Tensor: ...

class histogramdd(tuple[Tensor, tuple[Tensor, ...]]):
    _fields: tuple[str, ...]
    @property
    def hist(self) -> Tensor: ...
    @property
    def bin_edges(self) -> tuple[Tensor, ...]: ...

class kthvalue(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class linalg_cholesky_ex(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def L(self) -> Tensor: ...
    @property
    def info(self) -> Tensor: ...

class linalg_eig(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def eigenvalues(self) -> Tensor: ...
    @property
    def eigenvectors(self) -> Tensor: ...

class linalg_eigh(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def eigenvalues(self) -> Tensor: ...
    @property
    def eigenvectors(self) -> Tensor: ...

class linalg_inv_ex(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def inverse(self) -> Tensor: ...
    @property
    def info(self) -> Tensor: ...

class linalg_ldl_factor(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def LD(self) -> Tensor: ...
    @property
    def pivots(self) -> Tensor: ...

class linalg_ldl_factor_ex(tuple[Tensor, Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def LD(self) -> Tensor: ...
    @property
    def pivots(self) -> Tensor: ...
    @property
    def info(self) -> Tensor: ...

class linalg_lstsq(tuple[Tensor, Tensor, Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def solution(self) -> Tensor: ...
    @property
    def residuals(self) -> Tensor: ...
    @property
    def rank(self) -> Tensor: ...
    @property
    def singular_values(self) -> Tensor: ...

class linalg_lu(tuple[Tensor, Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def P(self) -> Tensor: ...
    @property
    def L(self) -> Tensor: ...
    @property
    def U(self) -> Tensor: ...

class linalg_lu_factor(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def LU(self) -> Tensor: ...
    @property
    def pivots(self) -> Tensor: ...

class linalg_lu_factor_ex(tuple[Tensor, Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def LU(self) -> Tensor: ...
    @property
    def pivots(self) -> Tensor: ...
    @property
    def info(self) -> Tensor: ...

class linalg_qr(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def Q(self) -> Tensor: ...
    @property
    def R(self) -> Tensor: ...

class linalg_slogdet(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def sign(self) -> Tensor: ...
    @property
    def logabsdet(self) -> Tensor: ...

class linalg_solve_ex(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def result(self) -> Tensor: ...
    @property
    def info(self) -> Tensor: ...

class linalg_svd(tuple[Tensor, Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def U(self) -> Tensor: ...
    @property
    def S(self) -> Tensor: ...
    @property
    def Vh(self) -> Tensor: ...

class lu_unpack(tuple[Tensor, Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def P(self) -> Tensor: ...
    @property
    def L(self) -> Tensor: ...
    @property
    def U(self) -> Tensor: ...

class max(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class median(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class min(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class mode(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class nanmedian(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class qr(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def Q(self) -> Tensor: ...
    @property
    def R(self) -> Tensor: ...

class slogdet(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def sign(self) -> Tensor: ...
    @property
    def logabsdet(self) -> Tensor: ...

class sort(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class svd(tuple[Tensor, Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def U(self) -> Tensor: ...
    @property
    def S(self) -> Tensor: ...
    @property
    def V(self) -> Tensor: ...

class topk(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def values(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...

class triangular_solve(tuple[Tensor, Tensor]):
    _fields: tuple[str, ...]
    @property
    def solution(self) -> Tensor: ...
    @property
    def cloned_coefficient(self) -> Tensor: ...
