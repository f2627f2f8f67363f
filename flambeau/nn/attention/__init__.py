"""Choice of the kernels that `scaled_dot_product_attention` may use.

>>> with sdpa_kernel(SDPBackend.MATH):
...     out = flambeau.nn.functional.scaled_dot_product_attention(q, k, v)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from ...core import naming as _naming
from ...core.absent import raising as _raising
from ...core.absent import returning as _returning
from ...core.settings import attention_kernels as _kernels

__all__ = [
    "SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "current_flash_attention_impl", "list_flash_attention_impls", "sdpa_kernel",
]  # fmt: skip
WARN_FOR_UNFUSED_KERNELS = False
activate_flash_attention_impl, register_flash_attention_impl = _raising(
    "activate_flash_attention_impl register_flash_attention_impl",
    NotImplementedError,
    "nn.attention.{}(): attention has one fused kernel for each device, which cannot be exchanged",
).values()
restore_flash_attention_impl, current_flash_attention_impl = _returning(
    "restore_flash_attention_impl current_flash_attention_impl", lambda: None, "none is ever chosen."
).values()
(list_flash_attention_impls,) = _returning(
    "list_flash_attention_impls", list, "there are none to choose from."
).values()


class SDPBackend(IntEnum):
    """Implementation of attention: step by step (MATH), or row by row without the whole matrix of weights (FLASH_ATTENTION)."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_KINDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@contextmanager
def sdpa_kernel(backends: Iterable[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """Context manager: attention is computed by one of these kernels (with `set_priority`, by the first that can), or raises. On the CPU
    there are MATH and FLASH_ATTENTION."""
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, (list, tuple, set)) or not all(isinstance(b, SDPBackend) for b in chosen):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got"
            f" {type(backends).__name__}"
        )
    if set_priority and SDPBackend.MATH in chosen:  # it takes all inputs: what comes after it is never reached
        chosen = list(chosen)[: list(chosen).index(SDPBackend.MATH) + 1]
    before = dict(_kernels)
    _kernels.update({kind: backend in chosen for kind, backend in _KINDS.items()})
    try:
        yield
    finally:
        _kernels.update(before)


if TYPE_CHECKING:
    from . import bias as bias
    from . import flex_attention as flex_attention
else:

    def __getattr__(name: str):
        if name.startswith("_"):
            raise _naming.no_attribute(__name__, name)
        return _naming.submodule(__name__, name)
