"""Models written by `export_library`, called from Python: `flambeau.load_library("libresnet.so")(x)`."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from ..core.dtype import BY_NAME
from ..core.tensor import Tensor, empty

DESCRIPTION = "flambeau_library"  # what the text in a library is called that says what goes in and comes out


class NativeModel:
    """A library's model. It takes tensors of the sizes it was written for, on the CPU, and is used by one thread at a time.

    A smaller first dimension (fewer images than the example had) is padded with zeros, and the results are cut to it."""

    def __init__(self, path: str | os.PathLike, threads: int = 0):
        self.path = Path(path).resolve()
        library = ctypes.CDLL(str(self.path))
        try:
            told = ctypes.cast(getattr(library, DESCRIPTION), ctypes.c_char_p).value or b""
        except AttributeError:
            raise RuntimeError(f"{self.path.name} is not a library that flambeau.export_library has written") from None
        self.facts: dict[str, Any] = json.loads(told)
        name = self.facts["name"]
        self._library = library  # keeps it loaded
        self._run, self._error, self._destroy = (
            getattr(library, f"{name}_{part}") for part in ("run", "error", "destroy")
        )
        create = getattr(library, f"{name}_create")
        create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
        self._error.restype, self._error.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
        self._run.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p)]
        self._destroy.argtypes = [ctypes.c_void_p]
        weights = self.path.with_name(f"{name}.weights")
        self._model = create(os.fsencode(weights) if weights.exists() else None, threads)
        if not self._model:
            raise RuntimeError(f"{self.path.name}: {(self._error(None) or b'').decode()}")

    def __call__(self, *inputs: Tensor) -> Any:
        count = self._check_inputs(inputs)
        whole = [_pad_to_shape(t, shape) for t, (shape, _) in zip(inputs, self.facts["inputs"], strict=True)]
        outputs = [empty(tuple(shape), BY_NAME[kind]) for shape, kind in self.facts["outputs"]]
        places = [(ctypes.c_void_p * max(1, len(ts)))(*(t.data_ptr() for t in ts)) for ts in (whole, outputs)]
        if self._run(self._model, *places):
            raise RuntimeError(f"{self.path.name}: {(self._error(self._model) or b'').decode()}")
        if count is not None:
            most = self.facts["inputs"][0][0][0]
            outputs = [o[:count] if o.shape and o.shape[0] == most else o for o in outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _check_inputs(self, inputs: tuple) -> int | None:
        """Check the inputs; return the caller's batch size if it is smaller than the library's, else None."""
        wanted = self.facts["inputs"]
        if len(inputs) != len(wanted):
            raise TypeError(f"{self.path.name} takes {len(wanted)} tensors, but got {len(inputs)}")
        fewer = None
        for i, (t, (shape, kind)) in enumerate(zip(inputs, wanted, strict=True)):
            if not isinstance(t, Tensor) or t.device.type != "cpu" or t.dtype.name != kind:
                got = f"{t.dtype} on {t.device}" if isinstance(t, Tensor) else type(t).__name__
                raise TypeError(f"{self.path.name}: input {i} must be a tensor of {kind} on the CPU, not {got}")
            same = list(t.shape) == shape
            if not same and (not shape or list(t.shape[1:]) != shape[1:] or not 0 < t.shape[0] < shape[0]):
                raise ValueError(
                    f"{self.path.name}: input {i} has the shape {list(t.shape)}, but the library is for {shape}"
                )
            fewer = fewer if same else t.shape[0]
        return fewer

    def eval(self) -> NativeModel:
        """Return the model itself: a library has no training mode."""
        return self

    def __repr__(self) -> str:
        return f"NativeModel({self.path.name}: {self.facts['inputs']} -> {self.facts['outputs']})"

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._destroy(self._model)
            self._model = None


def _pad_to_shape(t: Tensor, shape: list[int]) -> Tensor:
    if list(t.shape) == shape:
        return t.contiguous()
    whole = t.new_zeros(shape)
    whole[: t.shape[0]] = t
    return whole


def load_library(path: str | os.PathLike[str], threads: int = 0) -> NativeModel:
    """Load the model in a library that `export_library` wrote; `threads`: 0 for the number it was written with."""
    return NativeModel(path, threads)
