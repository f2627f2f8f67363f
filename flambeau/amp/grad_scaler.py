"""Loss scaling: gradients of low-precision tensors are kept away from zero by a factor, and steps with infinities are skipped."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from enum import Enum
from typing import Any

from ..autograd import no_grad
from ..core import dtype as dt
from ..core.backend import has_backend
from ..core.device import device as make_device
from ..core.tensor import Tensor
from ..ops.creation.filled import full
from ..ops.pointwise.comparison import where
from ..ops.pointwise.unscaling import unscale_list
from ..optim import Optimizer

__all__ = ["GradScaler", "OptState"]

_NOT_SCALED = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."


class OptState(Enum):
    """The stage of an optimizer since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Progress:
    """State of one optimizer since the last `update`: its stage, and whether gradients are not finite, by device."""

    def __init__(self) -> None:
        self.stage = OptState.READY
        self.found_inf: dict[Any, Tensor] = {}  # by device: 1 where a gradient is not finite, else 0


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
        self._device = device
        self._enabled = enabled
        if enabled and make_device(device).type == "cuda" and not has_backend(make_device(device)):
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError(f"The growth factor must be > 1.0, got {growth_factor}")
            if backoff_factor >= 1.0:
                raise AssertionError(f"The backoff factor must be < 1.0, got {backoff_factor}")
        self._init_scale = init_scale
        self._init_growth_tracker = 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        # Made by the first `scale`, which `step` and `update` need to have seen.
        self._scale: Tensor | None = None
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: dict[int, _Progress] = {}

    def _progress(self, optimizer: Optimizer) -> _Progress:
        return self._per_optimizer_states.setdefault(id(optimizer), _Progress())

    def _require_scale(self, asking: str) -> Tensor:
        if self._scale is None:
            raise AssertionError(f"Attempted {asking} but _scale is None.  {_NOT_SCALED}")
        return self._scale

    # -- the loss ---------------------------------------------------------------------------------------------------------
    def scale(self, outputs: Any) -> Any:
        """Multiply a tensor, or all tensors of an iterable, by the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._scale = full((), float(self._init_scale), dtype=dt.float32, device=outputs.device)
                self._growth_tracker = full((), self._init_growth_tracker, dtype=dt.int32, device=outputs.device)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError(f"outputs must be a Tensor or an iterable of Tensors, got {type(outputs).__name__}")

    # -- the gradients ------------------------------------------------------------------------------------------------------
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the factor, for example to clip them before `step`."""
        if not self._enabled:
            return
        current = self._require_scale("unscale_")
        progress = self._progress(optimizer)
        if progress.stage is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if progress.stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        factor = current.double().reciprocal().float()
        progress.found_inf = self._unscale_grads_(optimizer, factor, False)
        progress.stage = OptState.UNSCALED

    def _unscale_grads_(self, optimizer: Optimizer, factor: Tensor, allow_fp16: bool) -> dict[Any, Tensor]:
        """Multiply the gradients by the factor; returns, by device, whether one of them is not finite."""
        found: dict[Any, Tensor] = {}
        held: dict[Any, list[Tensor]] = {}
        with no_grad():
            for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
                grad = parameter.grad
                if not allow_fp16 and grad.dtype is dt.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                if grad.is_sparse:  # entries of the same place may add up to infinity
                    parameter.grad = grad = grad.coalesce()
                values = grad._values() if grad.is_sparse else grad
                held.setdefault(grad.device, []).append(values)
            for place, values in held.items():
                # without asking the device for the answer: it is read once, in `step`
                found[place] = full((), 0.0, dtype=dt.float32, device=place)
                unscale_list(found[place], values, factor.to(place))
        return found

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Call `optimizer.step(...)` with unscaled gradients, unless one of them is infinite or not a number."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._require_scale("step")
        progress = self._progress(optimizer)
        if progress.stage is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_by_itself(optimizer, progress, *args, **kwargs)
        if progress.stage is OptState.READY:
            self.unscale_(optimizer)
        if not progress.found_inf:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._maybe_opt_step(optimizer, progress, *args, **kwargs)
        progress.stage = OptState.STEPPED
        return result

    def _step_by_itself(self, optimizer: Any, progress: _Progress, *args: Any, **kwargs: Any) -> Any:
        """Run the step of an optimizer that unscales and skips by itself: it reads the factor from `grad_scale` and, from `found_inf`,
        whether a gradient is not finite; older ones take the scaler as an argument."""
        takes_scaler = "grad_scaler" in inspect.signature(optimizer.step).parameters
        if takes_scaler:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer: it should read its"
                " attributes `grad_scale` and `found_inf`.",
                FutureWarning,
                stacklevel=3,
            )
            kwargs["grad_scaler"] = self
        else:
            if progress.stage is OptState.READY:
                self._check_inf_per_device(optimizer)
            own = getattr(optimizer, "grad_scale", None)
            current = self._require_scale("step")
            factor = current if own is None else current * own
            optimizer.grad_scale = None if progress.stage is OptState.UNSCALED else factor
            optimizer.found_inf = sum(
                (f.to(current.device) for f in progress.found_inf.values()),
                full((), 0.0, dtype=dt.float32, device=current.device),
            )
        result = optimizer.step(*args, **kwargs)
        progress.stage = OptState.STEPPED
        if not takes_scaler:
            del optimizer.grad_scale, optimizer.found_inf
        return result

    def _maybe_opt_step(self, optimizer: Optimizer, progress: _Progress, *args: Any, **kwargs: Any) -> Any:
        if any(found.item() for found in progress.found_inf.values()):
            return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the factor: smaller after infinite gradients, larger after many steps without. Or set it."""
        if not self._enabled:
            return
        current = self._require_scale("update")
        if new_scale is None:
            found = [f for progress in self._per_optimizer_states.values() for f in progress.found_inf.values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._update_scale_and_growth(current, found)
        elif isinstance(new_scale, float):
            current.fill_(new_scale)
        else:
            _check_new_scale(new_scale)
            current.copy_(new_scale)
        self._per_optimizer_states.clear()

    def _update_scale_and_growth(self, current: Tensor, found: list[Tensor]) -> None:
        """Update the factor and the count of good steps on the device, without reading them, which would wait for it."""
        tracker: Any = self._growth_tracker
        assert tracker is not None
        with no_grad():
            infinite = sum(f.to(current.device) for f in found[1:]) + found[0].to(current.device) > 0
            steps = tracker + 1
            due = (steps == self._growth_interval) & ~infinite
            grown = current * self._growth_factor
            factor = where(due & grown.isfinite(), grown, current)
            current.copy_(where(infinite, current * self._backoff_factor, factor))
            tracker.copy_(where(due | infinite, 0, steps))

    # -- settings -----------------------------------------------------------------------------------------------------------
    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """Return the factor; 1 if the scaler is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def get_growth_factor(self) -> float:
        """Return the number by which the scale is multiplied when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the number by which the scale is multiplied when it grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Return the number by which the scale is multiplied after infinite gradients."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the number by which the scale is multiplied after infinite gradients."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Return the number of successive good steps after which the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many good steps the factor grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Return whether gradients are scaled."""
        return self._enabled

    def _check_inf_per_device(self, optimizer: Optimizer) -> dict[Any, Tensor]:
        """Look for infinities without changing the gradients."""
        self._require_scale("_check_inf_per_device")
        progress = self._progress(optimizer)
        progress.found_inf = self._unscale_grads_(optimizer, full((), 1.0, dtype=dt.float32), True)
        return progress.found_inf

    def _found_inf_per_device(self, optimizer: Optimizer) -> dict[Any, Tensor]:
        return self._progress(optimizer).found_inf

    # -- files ----------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Return the state to save with a checkpoint; empty if the scaler is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scale and its growth from the result of `state_dict`."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._per_optimizer_states:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after"
                " scaler.update()."
            )
        state = self.__dict__.copy()
        state.update(_init_scale=self.get_scale(), _init_growth_tracker=self._get_growth_tracker())
        state.update(_scale=None, _growth_tracker=None)
        return state


def _check_new_scale(new_scale: Any) -> None:
    """Raise unless a new scale is a tensor with one element that does not require gradients, as in PyTorch."""
    if not isinstance(new_scale, Tensor):
        raise TypeError(f"new_scale should be a float or a tensor with one element, got {type(new_scale).__name__}")
    if new_scale.numel() != 1 or new_scale.requires_grad:
        raise AssertionError(
            "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False."
        )
