"""Optimizers whose update treats all elements alike, given by a formula and a description of its state."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Concatenate, ParamSpec

from ..core.device import cpu
from ..core.tensor import Tensor
from ..ops.creation.filled import full, zeros_like
from ..ops.pointwise.unscaling import unscale_list
from .fused import Update
from .optimizer import Optimizer, ParamsT, check_one_element, evaluated, scalar_dtype, to_scalar, without_grad

P = ParamSpec("P")


def nonzero(value: Any) -> Any:
    """Return None instead of 0: a formula omits terms whose option is None."""
    return value if value != 0 else None


# How options of formulas are read from a group, where they are not simply its entries of the same name.
_READ: dict[str, Callable[[dict[str, Any]], Any]] = {
    "lr": lambda group: to_scalar(group["lr"]),
    "beta1": lambda group: to_scalar(group["betas"][0]),
    "beta2": lambda group: to_scalar(group["betas"][1]),
    "weight_decay": lambda group: nonzero(group["weight_decay"]),
    "momentum": lambda group: nonzero(group["momentum"]),
    "decoupled": lambda group: bool(group["decoupled_weight_decay"]),
    "amsgrad": lambda group: bool(group["amsgrad"]),
    "centered": lambda group: bool(group["centered"]),
    "maximize": lambda group: bool(group["maximize"]),
    "nesterov": lambda group: bool(group["nesterov"]),
    "first": lambda group: False,  # of a parameter that has no state yet, `_begin` sets it
    "shrink": lambda group: group["etas"][0],
    "grow": lambda group: group["etas"][1],
    "smallest": lambda group: group["step_sizes"][0],
    "largest": lambda group: group["step_sizes"][1],
}


class ElementwiseOptimizer(Optimizer):
    """Base of optimizers whose update is a formula of one element: a subclass defines the formula and the state of a new parameter."""

    _first_options: ClassVar[str] = ""  # the first keys of groups in PyTorch's order, where it is not the signature's
    update: ClassVar[Update]
    zero_states: ClassVar[tuple[str, ...]] = ()  # state that starts as zeros in the parameter's shape
    sparse_advice: ClassVar[str] = ""
    sparse_name: ClassVar[str] = ""  # in the refusal of sparse gradients, if not the class's own name

    def _constructed(self) -> None:
        """Hook at the end of the constructor: check that `fused` is not combined with other implementations."""
        if self.defaults.get("fused"):
            if self.defaults["differentiable"]:
                raise RuntimeError("`fused` does not support `differentiable`")
            if self.defaults["foreach"]:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
            self._step_supports_amp_scaling = True

    def _options(self, group: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of the formula."""
        return {name: _READ[name](group) if name in _READ else group[name] for name in self.update.options}

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of state that starts as zeros, according to the group's options."""
        return self.zero_states

    def _begin(self, group: dict[str, Any], state: dict[str, Any], p: Tensor, grad: Tensor) -> bool:
        """Fill the state of a parameter that is updated for the first time; return whether that update is done, too."""
        # At once: after an interrupt, a state that has some of its entries would be taken for a complete one.
        state.update(self._new_state(group, p, grad))
        return False

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        """Return the state of a parameter that was never updated."""
        return {"step": self._scalar(0.0, group, p), **{name: zeros_like(p) for name in self._state_names(group)}}

    def _scalar(self, value: Any, group: dict[str, Any], p: Tensor) -> Tensor:
        """Return a number of the optimizer's state as a tensor."""
        where = p.device if group.get("capturable") or group.get("fused") else "cpu"
        return full((), value, dtype=scalar_dtype(group.get("fused")), device=where)

    @without_grad
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once. `closure` computes the loss and its gradients again, and returns the loss."""
        loss = evaluated(closure)
        if self._gradients_are_finite():
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        if group.get("fused"):
            for p in group["params"]:
                check_fused(p)
        if group.get("capturable") and any(p.grad is not None and p.device.type == "cpu" for p in group["params"]):
            raise AssertionError(
                "If capturable=True, params and state_steps must be on supported devices: graphs capture the work of GPUs"
            )
        self._run(group, group["params"], self._options(group))

    def _run(self, group: dict[str, Any], params: list[Tensor], options: dict[str, Any]) -> None:
        self.update.run(self, group, params, options)

    def _sparse_gradient(self, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        """Update a parameter whose gradient is sparse."""
        raise RuntimeError(
            f"{self.sparse_name or type(self).__name__} does not support sparse gradients{self.sparse_advice}"
        )

    def _gradients_are_finite(self) -> bool:
        """Unscale the gradients if a gradient scaler left that to the step; return False if one overflowed."""
        found_inf, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        by_host = found_inf is not None and (found_inf.device is cpu or any(g.is_sparse for g in grads))
        if found_inf is not None and by_host and found_inf.item():  # elsewhere, kernels look
            return False
        if scale is not None:
            if found_inf is not None and not by_host and all(g.device is found_inf.device for g in grads):
                unscale_list(zeros_like(found_inf), grads, scale.double().reciprocal().float())
            else:
                for grad in grads:
                    grad.div_(scale)
        return True

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        constructors: Iterator[Any] = (vars(kind).get("__init__") for kind in type(self).__mro__)
        later = next(c.later_options for c in constructors if hasattr(c, "later_options"))
        for group in self.param_groups:
            for name, value in later.items():
                group.setdefault(name, value)
            for p in group["params"]:
                saved = self.state.get(p)
                if saved:
                    self._numbers_to_tensors(group, saved, p)

    def _numbers_to_tensors(self, group: dict[str, Any], saved: dict[str, Any], p: Tensor) -> None:
        """Convert plain numbers in the state of old checkpoints to tensors."""
        for name in self.update.scalars:
            if name in saved and not isinstance(saved[name], Tensor):
                saved[name] = self._scalar(float(saved[name]), group, p)


def check_fused(p: Tensor) -> None:
    if not p.dtype.is_floating_point:
        raise RuntimeError(
            f"`fused=True` requires all the params to be floating point Tensors of supported devices, but got {p.dtype} on"
            f" {p.device}"
        )


def check_range(name: str, value: Any, valid: Any) -> None:
    if not valid:
        raise ValueError(f"Invalid {name}: {value}")


def check_betas(betas: Any) -> None:
    for i in (0, 1):
        check_one_element(f"betas[{i}]", betas[i])
        check_range(f"beta parameter at index {i}", betas[i], 0 <= betas[i] < 1)


# How messages call the options that no optimizer takes below 0.
_NOT_NEGATIVE = {
    "lr": "learning rate", "eps": "epsilon value",
    **{name: f"{name} value" for name in ("initial_accumulator_value", "lr_decay", "momentum", "momentum_decay", "weight_decay")},
}  # fmt: skip
# Options that older checkpoints lack; each optimizer has its own default.
_LATER_OPTIONS = (
    "amsgrad", "capturable", "centered", "decoupled_weight_decay", "differentiable", "foreach", "fused", "maximize", "momentum", "nesterov",
)  # fmt: skip


def configured(
    own_checks: Callable[Concatenate[Any, ParamsT, P], None],
) -> Callable[Concatenate[Any, ParamsT, P], None]:
    """Decorator of an optimizer's constructor, whose body has its own checks: run these after the checks that all optimizers share, and
    make the arguments the defaults of the groups.

    >>> class Plain(ElementwiseOptimizer):
    ...     @configured
    ...     def __init__(self, params, lr=1e-3, *, maximize=False): ...
    """
    signature = inspect.signature(own_checks)

    @functools.wraps(own_checks)
    def constructor(self: Any, params: ParamsT, *args: P.args, **kwargs: P.kwargs) -> None:
        bound = signature.bind(self, params, *args, **kwargs)
        bound.apply_defaults()
        _, _, *given = bound.arguments.items()
        defaults = dict.fromkeys(self._first_options.split()) | dict(given)
        for name, value in given:
            if name == "betas":
                check_betas(value)
                defaults[name] = tuple(map(to_scalar, value))
            elif name in _NOT_NEGATIVE:
                check_one_element(name, value)
                check_range(_NOT_NEGATIVE[name], value, value >= 0)
        own_checks(self, params, *args, **kwargs)
        Optimizer.__init__(self, params, defaults)
        self._constructed()

    vars(constructor)["later_options"] = {n: p.default for n, p in signature.parameters.items() if n in _LATER_OPTIONS}
    return constructor
