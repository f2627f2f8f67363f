"""Global switches that programs written for PyTorch set.

Results on the CPU are the same in every run and float32 products are computed in float32, so the switches for determinism and precision
change nothing there; libraries on a GPU respect them."""

from __future__ import annotations

import warnings
from typing import Any

_MODES = {"default": 0, "warn": 1, "error": 2}
_PRECISIONS = ("highest", "high", "medium")

# Which kernels attention may use, by PyTorch's names for them.
attention_kernels = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


# Names, and what code of this library finds by them and programs may change: dicts, and classes whose attributes are meant. `compile` guards
# those that code which ran has named.
changeable: list[tuple[str, Any]] = []


def may_change(held: Any, name: str = "") -> Any:
    """Return a dict or a class, declared as one that programs may change after `compile` has recorded what depends on it."""
    changeable.append((name or held.__name__, held))
    return held


class MatmulSwitches:
    """Settings of the shortcuts that matrix products on a GPU may take. `state` changes with them, for caches of plans."""

    precision: str
    allow_tf32: bool
    allow_fp16_reduced_precision_reduction: bool
    allow_bf16_reduced_precision_reduction: bool
    allow_fp16_accumulation: bool
    state: int

    def __init__(self) -> None:
        values = {"precision": "highest", "allow_fp16_reduced_precision_reduction": True}
        self.__dict__.update(values, allow_bf16_reduced_precision_reduction=True, allow_fp16_accumulation=False)
        self._renew()

    def __setattr__(self, name: str, value: object) -> None:
        if name == "allow_tf32":
            name, value = "precision", "high" if value else "highest"
        if name not in self.__dict__:
            raise AttributeError(f"Unknown attribute {name}")
        self.__dict__[name] = value
        self._renew()

    def _renew(self) -> None:
        self.__dict__["allow_tf32"] = self.__dict__["precision"] != "highest"
        switches = [bool(v) for k, v in self.__dict__.items() if k.startswith("allow")]
        self.__dict__["state"] = sum(on << i for i, on in enumerate(switches))


class CudnnSwitches:
    """Settings of how cuDNN chooses its kernels: TF32 or exact float32, deterministic ones only, the fastest by trial."""

    enabled = True
    benchmark = False
    benchmark_limit: int | None = None
    deterministic = False
    allow_tf32 = True

    def state(self) -> tuple[Any, ...]:
        """Return all settings, to be compared."""
        return self.enabled, self.benchmark, self.benchmark_limit, self.deterministic, self.allow_tf32


matmul_switches = MatmulSwitches()
cudnn_switches = CudnnSwitches()


class _State:
    deterministic = False
    warn_only = False
    warn_always = False
    fill_uninitialized_memory = True


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Request results that do not differ between runs; on the CPU they never do."""
    if not isinstance(mode, bool):
        raise TypeError(
            f"use_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not {type(mode).__name__}"
        )
    _State.deterministic, _State.warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Return whether only deterministic algorithms may run."""
    return _State.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Return whether nondeterministic algorithms only warn instead of failing."""
    return _State.warn_only


def set_fill_uninitialized_memory(fill: bool) -> None:
    """Set whether `empty` and similar functions fill their memory while deterministic algorithms are requested."""
    _State.fill_uninitialized_memory = bool(fill)


def is_fill_uninitialized_memory_set() -> bool:
    return _State.fill_uninitialized_memory


def fills_empty() -> bool:
    """Return whether uninitialised memory must look the same in every run."""
    return _State.deterministic and _State.fill_uninitialized_memory


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Set the mode: 0 or "default", 1 or "warn", 2 or "error"."""
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = _MODES[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """Return 0, 1 (warn) or 2 (fail): see `set_deterministic_debug_mode`."""
    return (1 if _State.warn_only else 2) if _State.deterministic else 0


def set_float32_matmul_precision(precision: str) -> None:
    """Set how exact float32 matrix products must be: "highest", "high" or "medium"."""
    if precision not in _PRECISIONS:
        warnings.warn(f"{precision} is not one of 'highest', 'high', or 'medium'; nothing was changed.", stacklevel=2)
        return
    matmul_switches.precision = precision


def get_float32_matmul_precision() -> str:
    """Return "highest", "high" or "medium": how exact float32 matrix products must be."""
    return matmul_switches.precision


def set_warn_always(b: bool) -> None:
    """Show warnings every time, not once per place."""
    _State.warn_always = bool(b)
    if _State.warn_always:
        warnings.simplefilter("always", UserWarning)


def is_warn_always_enabled() -> bool:
    """Return whether warnings are shown every time."""
    return _State.warn_always


def set_flush_denormal(mode: bool) -> bool:
    """Return whether the processor was told to flush tiny numbers to zero: never, they are computed exactly."""
    return False


def is_scripting() -> bool:
    """Return whether this is code compiled by TorchScript: in Python never. The compiler omits branches for Python only."""
    return False
