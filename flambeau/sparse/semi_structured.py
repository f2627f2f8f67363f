"""Semi-structured matrices (two of four neighbours zero): not supported, but libraries test whether a tensor is one."""

from __future__ import annotations

from typing import Any, NoReturn

from ..core.overrides import disabled_torch_function
from ..core.tensor import Tensor

__all__ = [
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
]  # fmt: skip


class SparseSemiStructuredTensor(Tensor):
    """A matrix with two of four neighbours zero. None can be made."""

    _DEFAULT_ALG_ID = 0  # of the GPU's algorithms: configurations of other people's libraries read it
    __torch_function__ = disabled_torch_function

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{cls.__name__}: semi-structured sparse matrices are not in Flambeau")


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """A semi-structured sparse tensor in the form of NVIDIA's cuSPARSELt. None can be made."""


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """A semi-structured sparse tensor in the form of CUTLASS. None can be made."""


def to_sparse_semi_structured(original_tensor: Tensor, transposed: bool = False) -> NoReturn:
    """Raise an error: semi-structured matrices are not supported."""
    raise NotImplementedError("to_sparse_semi_structured: semi-structured sparse matrices are not in Flambeau")
