"""Methods of quantized tensors that replace the strided ones: those that need no memory, and Python's."""

from __future__ import annotations

import copy
import math
from typing import Any, NoReturn

from ...core import dtype as dt
from ...core import printing
from ...core.device import default_device
from ...core.layout import channels_last
from ...core.quantized import PER_BYTE, QuantizedTensor, Quantizer, wrap
from ...core.tensor import Tensor
from ...core.typed_storage import TypedStorage
from ..machinery.memory import values_on_host
from ..machinery.quantized_dispatch import on_codes
from . import tensors
from .codes import codes_of, values_of


def item(self: Any) -> float:
    """The only element, as a Python number."""
    return values_of(self).item()


def _no_numpy(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"Got unsupported ScalarType {self.dtype.scalar_type}")


def _no_list(self: Any) -> NoReturn:
    raise RuntimeError("load_scalar: invalid type")


# -- parts -------------------------------------------------------------------------------------------------------------


def getitem(self: Any, key: Any) -> Tensor:
    if self._quantizer.per_tensor:
        return on_codes(Tensor.__getitem__, (self, key), {})
    result, dim = self, 0
    keys = key if isinstance(key, tuple) else (key,)
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        spared = len(self.shape) - sum(k is not None for k in keys) + 1
        keys = (*keys[:at], *(slice(None),) * spared, *keys[at + 1 :])
    for k in keys:
        if type(k) is int:
            result = result.select(dim, k)
        elif isinstance(k, slice):
            result = _sliced(result, dim, k)
            dim += 1
        elif k is None:
            result = result.unsqueeze(dim)
            dim += 1
        else:
            raise RuntimeError("Setting strides is possible only on uniformly quantized tensor")
    return result


def _sliced(t: Any, dim: int, part: slice) -> Tensor:
    codes = t._codes[(slice(None),) * dim + (part,)]
    q = t._quantizer
    if q.per_tensor or q.axis != dim:
        return wrap(codes, q, t.dtype)
    return wrap(codes, Quantizer(q.scheme, q.scale[part], q.zero_point[part], dim), t.dtype)


def setitem(self: Any, key: Any, value: Any) -> None:
    q = self._quantizer
    if isinstance(value, QuantizedTensor):
        value = values_of(value)
    elif not isinstance(value, Tensor):
        value = self._codes.new_full((), float(value), dtype=dt.float32)
    value = value.detach().to(dt.float32)
    if q.per_tensor:
        self._codes[key] = codes_of(value, q.scale, q.zero_point, self.dtype)
    else:
        part = getitem(self, key)
        if not part.is_contiguous() and not (len(part.shape) == 4 and part.is_contiguous(memory_format=channels_last)):
            raise RuntimeError("Quantized copy only works with contiguous and NHWC Tensors")
        part.copy_(value.expand(part.shape))


# -- Python ------------------------------------------------------------------------------------------------------------


def text(self: Any, *, tensor_contents: str | None = None) -> str:
    q = self._quantizer
    prefix = "tensor("
    suffixes = [f"device='{self.device}'"] if self.device is not default_device() else []
    suffixes += [f"size={tuple(self.shape)}", f"dtype={self.dtype}", f"quantization_scheme={q.scheme}"]
    suffixes += [f"scale={q.scale}", f"zero_point={q.zero_point}"]
    if not q.per_tensor:
        suffixes.append(f"axis={q.axis}")
    if tensor_contents is None:
        values = values_of(self)
        tensor_contents = printing.body(values_on_host(values), values.dtype, values.shape, len(prefix))
    return printing.assemble(prefix, tensor_contents, suffixes, len(prefix))


def rebuild_quantized(codes: Tensor, quantizer: tuple[Any, ...], d: Any) -> Tensor:
    """Rebuild a quantized tensor from its pickled parts."""
    return wrap(codes, Quantizer(*quantizer), d)


def reduce_ex(self: Any, protocol: int) -> tuple[Any, ...]:
    q = self._quantizer
    return (rebuild_quantized, (self._codes, (q.scheme, q.scale, q.zero_point, q.axis), self.dtype))


def shallow_copy(self: Any) -> Tensor:
    return wrap(self._codes, self._quantizer, self.dtype)


def deep_copy(self: Any, memo: dict[int, Any]) -> Tensor:
    if id(self) not in memo:
        q = self._quantizer
        own = Quantizer(q.scheme, copy.deepcopy(q.scale, memo), copy.deepcopy(q.zero_point, memo), q.axis)
        memo[id(self)] = wrap(copy.deepcopy(self._codes, memo), own, self.dtype)
    return memo[id(self)]


def _type(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if dtype is None:
        return f"torch.quantized.{self.dtype.scalar_type}Tensor"
    return self.to(dtype)


def _storage(self: Any) -> TypedStorage:
    if self.dtype not in PER_BYTE:
        return TypedStorage(self._storage, self.dtype)
    return TypedStorage(tensors.in_storage(self)._storage, self.dtype)


def _resized(self: Any, *sizes: Any) -> Tensor:
    sizes = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if math.prod(sizes) != self.numel():
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, sizes))} ({math.prod(sizes)} elements in total), but the given tensor has a"
            f" size of {'x'.join(map(str, self.shape))} ({self.numel()} elements). autograd's resize can only change the shape of a"
            " given tensor, while preserving the number of elements. "
        )
    return self.contiguous().view(sizes)


def _no_new(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("new(): a quantized tensor cannot be made without a scale: use quantize_per_tensor")


def _requires_grad_(self: Any, requires_grad: bool = True) -> Tensor:
    if requires_grad:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    return self


_METHODS: dict[str, Any] = {
    "item": item, "numpy": _no_numpy, "__array__": _no_numpy, "tolist": _no_list, "__getitem__": getitem, "__setitem__": setitem,
    "__repr__": text, "__reduce_ex__": reduce_ex, "__copy__": shallow_copy, "__deepcopy__": deep_copy, "type": _type,
    "requires_grad_": _requires_grad_, "resize": _resized, "new": _no_new,
    "storage": _storage, "_typed_storage": _storage,
    "data": property(lambda self: wrap(self._codes, self._quantizer, self.dtype), lambda self, value: self._adopt(value)),
    "is_set_to": lambda self, other: isinstance(other, QuantizedTensor) and self._codes.is_set_to(other._codes),
}  # fmt: skip

for _name, _method in _METHODS.items():
    setattr(QuantizedTensor, _name, _method)
