"""Loss scaling: gradients of low-precision tensors are kept away from zero by a factor, and steps with infinities are skipped."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ..autograd import no_grad
from ..core.device import device as make_device
from ..core.tensor import Tensor
from ..optim import Optimizer

_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"


class GradScaler:
    """Multiplies the loss before `backward` and divides the gradients after it, with a factor that adapts.

    >>> scaler = flambeau.amp.GradScaler("cpu")
    >>> scaler.scale(loss).backward()
    >>> scaler.step(optimizer)       # unscales; leaves the parameters alone if a gradient is not finite
    >>> scaler.update()

    With `enabled=False`, or when its device is not available, it passes everything through.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        self._device = make_device(device).type
        if enabled and self._device != "cpu":
            warnings.warn(f"GradScaler is enabled, but {self._device!r} is not available. Disabling.", stacklevel=2)
            enabled = False
        self._enabled = enabled
        if growth_factor <= 1.0:
            raise AssertionError(f"The growth factor must be > 1.0, got {growth_factor}")
        if backoff_factor >= 1.0:
            raise AssertionError(f"The backoff factor must be < 1.0, got {backoff_factor}")
        self._scale = float(init_scale)
        self._growth_factor, self._backoff_factor, self._growth_interval = (
            growth_factor,
            backoff_factor,
            growth_interval,
        )
        self._growth_tracker = 0
        self._stages: dict[int, str] = {}
        self._infinite: dict[int, bool] = {}

    # -- the loss ---------------------------------------------------------------------------------------------------------
    def scale(self, outputs: Any) -> Any:
        """The tensor, or all tensors of a list or tuple, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled: Iterator = (self.scale(item) for item in outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled  # type: ignore[call-arg]
        raise ValueError(f"outputs must be a Tensor or an iterable of Tensors, got {type(outputs).__name__}")

    # -- the gradients ------------------------------------------------------------------------------------------------------
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the factor, for example to clip them before `step`."""
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer), _READY)
        if stage == _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        infinite = False
        with no_grad():
            for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
                infinite = infinite or not bool(parameter.grad.isfinite().all())
                parameter.grad.mul_(1.0 / self._scale)
        self._infinite[id(optimizer)] = infinite
        self._stages[id(optimizer)] = _UNSCALED

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)` with unscaled gradients, unless one of them is infinite or not a number."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        stage = self._stages.get(id(optimizer), _READY)
        if stage == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if stage == _READY:
            self.unscale_(optimizer)
        result = None if self._infinite[id(optimizer)] else optimizer.step(*args, **kwargs)
        self._stages[id(optimizer)] = _STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the factor: smaller after infinite gradients, larger after many steps without."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            if not self._infinite:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._adapt(any(self._infinite.values()))
        self._stages.clear()
        self._infinite.clear()

    def _adapt(self, infinite: bool) -> None:
        if infinite:
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            if math.isfinite(self._scale * self._growth_factor):
                self._scale *= self._growth_factor
            self._growth_tracker = 0

    # -- settings -----------------------------------------------------------------------------------------------------------
    def get_scale(self) -> float:
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = int(state_dict["_growth_tracker"])
