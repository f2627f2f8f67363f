"""Weights packed for products: the results of `*_prepack`, which modules keep."""

from __future__ import annotations

import copyreg
import functools
from typing import Any, ClassVar

import numpy as np

from ...backends.cpu.onednn.int8 import Weights
from ...core import dtype as dt
from ...core.caching import remember
from ...core.native_class import PREFIX, CustomClass
from ...core.quantized import QuantizedTensor
from ...core.tensor import Tensor, copy_of_array
from ..machinery.memory import values_on_host

_MAX_KNOWN = 32


KINDS: dict[str, Any] = {}  # the classes of packed weights, by their names in files


class ScriptObject:
    """Base of objects that PyTorch's files describe as instances of its C++ classes: made empty, then given their state and the name of their
    class."""

    __torch_class__: str

    def __init_subclass__(cls) -> None:
        if "__torch_class__" in cls.__dict__:
            KINDS[f"{PREFIX}{cls.__torch_class__}"] = cls

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return copyreg.__newobj__, (ScriptObject,), self.__getstate__()  # type: ignore[attr-defined]

    def __getstate__(self) -> tuple[Any, ...]:
        return self.state(), f"{PREFIX}{type(self).__torch_class__}"

    def __setstate__(self, given: Any) -> None:
        state, name = given
        if name not in KINDS:
            raise RuntimeError(f"the file has an object of class {name}, which Flambeau does not have")
        become(self, KINDS[name])
        KINDS[name].set_state(self, state)

    def state(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def set_state(self, state: Any) -> None:
        """Set the state of an object that was made empty."""
        self.__init__(*state)  # type: ignore[misc]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = self  # nothing about it ever changes
        return self


ScriptObject.__module__ = "flambeau"


def become(made: Any, kind: type) -> None:
    """Change an object's class, whatever its `__class__` says."""
    vars(object)["__class__"].__set__(made, kind)


def methods(**schemas: str) -> dict[str, tuple[str, None]]:
    """Return the TorchScript schemas of a class's methods, those of its state included."""
    return {name: (f"{name}{text}", None) for name, text in schemas.items()}


class NativeObject(CustomClass, ScriptObject):
    """The base of the classes themselves: their objects claim to be ScriptObjects, and are pickled as such."""

    script_names: ClassVar[dict[str, str]] = {"__getstate__": "state", "__setstate__": "set_state"}

    @classmethod
    def script_name(cls) -> str:
        return f"{PREFIX}{cls.__torch_class__}"

    __class__ = property(lambda self: ScriptObject)


class Packed(NativeObject):
    """Quantized weights and a bias in float32, with the numbers that products need. `channel` is the dimension of the outputs."""

    def __init__(self, weight: Any, bias: Tensor | None, channel: int = 0, groups: int = 1):
        self.weight, self.given_bias, self.channel = weight, bias, channel
        self.codes = np.ascontiguousarray(values_on_host(weight._codes))
        self.outputs = weight.shape[channel] * (groups if channel else 1)
        q = weight._quantizer
        if q.per_tensor:
            scales, zeros = np.full(self.outputs, q.scale), np.full(self.outputs, q.zero_point)
        else:
            scales, zeros = values_on_host(q.scale), values_on_host(q.zero_point)
        self.by_channel = not q.per_tensor
        self.scales, self.zeros = scales.astype(np.float32), zeros.astype(np.int64)
        self.bias_values = None if bias is None else np.ascontiguousarray(values_on_host(bias.detach()), np.float32)
        self.known: dict[tuple[Any, ...], Any] = {}
        self._weights: Weights | None = None

    def unpack(self) -> tuple[Any, Tensor | None]:
        """Return the original weights and bias."""
        return self.weight, self.given_bias

    def bias(self) -> Tensor | None:
        return self.given_bias

    def state(self) -> tuple[Any, ...]:
        return self.weight, self.given_bias

    def remember(self, key: tuple[Any, ...], value: Any) -> Any:
        """Cache a value computed from the scales of a call, which are the same every time in most programs."""
        return remember(self.known, key, value, _MAX_KNOWN)

    @functools.cached_property
    def symmetric(self) -> bool:
        return not self.zeros.any()


def fbgemm_bias(packed: Packed, scales: np.ndarray) -> tuple[np.ndarray | None, float]:
    """Return the bias, and its factor when it is added to sums, which are in units of `scales` (the input's times the weights'): FBGEMM
    divides by scales of channels, and multiplies with the reciprocal of a single one as it adds."""
    if packed.bias_values is None or packed.by_channel:
        return None if packed.bias_values is None else packed.bias_values / scales, 1.0
    return packed.bias_values, float(np.float32(1) / scales[0])


def row(values: Any, kind: Any) -> Tensor:
    return copy_of_array(np.ascontiguousarray(values, kind.numpy), kind)


def check_weight(weight: Any, bias: Any, name: str, dims: int) -> None:
    if not isinstance(weight, QuantizedTensor) or weight.dtype is not dt.qint8:
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise RuntimeError(f"{name}: the weight should be a quantized tensor of dtype torch.qint8, got {kind}")
    if len(weight.shape) != dims:
        raise RuntimeError(f"{name}: the weight tensor should have {dims} dimensions, got {len(weight.shape)}")
    if bias is not None and (not isinstance(bias, Tensor) or bias.dtype is not dt.float32):
        raise RuntimeError(f"{name}: the bias should be a tensor of dtype torch.float32")
