"""Pruning: weights held at zero by a mask.

A pruned parameter `weight` becomes the parameter `weight_orig`, the buffer `weight_mask` and a plain attribute `weight`,
their product, computed before each forward.

>>> layer = l1_unstructured(nn.Linear(4, 2), "weight", amount=0.5)
>>> int((layer.weight == 0).sum())
4
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ...core.layout import contiguous_format
from ...core.tensor import Tensor
from ...ops.creation.filled import ones_like, zeros_like
from ...ops.random.fills import rand, rand_like
from ...ops.reduce.norms import norm
from ...ops.shape.joining import cat
from ..modules.module import Module


# -- amounts and dimensions -------------------------------------------------------------------------------------------
def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    negative_count = isinstance(amount, numbers.Integral) and amount < 0
    bad_share = not isinstance(amount, numbers.Integral) and not 0.0 <= float(amount) <= 1.0
    if negative_count or bad_share:
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    _validate_pruning_amount(amount, tensor_size)
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _check_channels(t: Tensor, dim: int) -> int:
    """Return the number of channels along `dim` of a tensor; raises if it cannot lose whole channels."""
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape"
            f" {t.shape} with {t.dim()} dims"
        )
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
    return t.shape[dim]


def _channel_mask(t: Tensor, dim: int, keep: Tensor) -> Tensor:
    """Return a mask that is zero where a channel is not among the indices (or bools) to keep."""
    mask = zeros_like(t)
    index: list[Any] = [slice(None)] * t.dim()
    index[dim] = keep
    mask[tuple(index)] = 1
    return mask


# -- methods ----------------------------------------------------------------------------------------------------------
class BasePruningMethod(ABC):
    """Base of pruning methods: subclasses compute the mask."""

    PRUNING_TYPE: str = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask for importance scores `t`, never keeping what `default_mask` dropped."""

    def apply_mask(self, module: Module) -> Tensor:
        """Return the parameter times its mask."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune a parameter; on one that is pruned already, prune further."""
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _take_hook(module, name)
        if earlier is not None:
            container = PruningContainer(earlier)
            container.add_pruning_method(method)
            method = container
        current = getattr(module, name)
        if importance_scores is None:
            importance_scores = current
        elif importance_scores.shape != current.shape:
            raise AssertionError(
                "importance_scores should have the same shape as parameter"
                f" {name} of {module}: {importance_scores.shape} and {current.shape}"
            )
        if earlier is None:
            original = module._parameters[name]
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            default_mask = ones_like(original)
        else:
            default_mask = getattr(module, name + "_mask").detach().clone(memory_format=contiguous_format)
        try:
            mask = method.compute_mask(importance_scores, default_mask=default_mask)
        except Exception:
            if earlier is None:  # leave the module as it was
                original = module._parameters.pop(name + "_orig")
                module.register_parameter(name, original)
            raise
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Return a pruned version of one tensor, without any module."""
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t: {importance_scores.shape} and {t.shape}"
            )
        default_mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(importance_scores, default_mask=default_mask)

    def remove(self, module: Module) -> None:
        """Make the pruned value the parameter permanently."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        name = self._tensor_name
        value = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original: Any = module._parameters.pop(name + "_orig")
        original.data = value.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _take_hook(module: Module, name: str) -> BasePruningMethod | None:
    """Remove the pruning hook of this parameter from the module and return it."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            del module._forward_pre_hooks[key]
            return hook
    return None


class PruningContainer(BasePruningMethod):
    """Sequence of prunings of one parameter, each working on what the earlier ones left."""

    def __init__(self, *args: Any):
        self._pruning_methods: tuple = ()
        if len(args) == 1 and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
            self.add_pruning_method(args[0])
        elif args:
            methods = args[0] if len(args) == 1 else args
            for method in methods:
                if not hasattr(self, "_tensor_name"):
                    self._tensor_name = method._tensor_name
                self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named"
                f" '{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the newest method's mask, computed on the part not pruned yet."""
        method = self._pruning_methods[-1]
        part: Any
        if method.PRUNING_TYPE == "unstructured":
            part = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(
                    f"Pruning methods of PRUNING_TYPE 'structured' need to have the attribute `dim`; {type(method).__name__} has none"
                )
            dim = method.dim % t.dim()
            others = [d for d in range(t.dim()) if d != dim]
            alive = default_mask.sum(dim=others) != 0
            part = (*[slice(None)] * dim, alive)
        elif method.PRUNING_TYPE == "global":
            part = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.to(dtype=t.dtype, copy=True)
        partial = method.compute_mask(t[part], default_mask=default_mask[part])
        mask[part] = partial.to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Pruning method that removes nothing, but sets up the mask and the parametrization."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _UnstructuredBase(BasePruningMethod):
    """Base of methods that prune single elements: `amount` is their number or fraction."""

    def __init__(self, amount: float):
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _choose(self, t: Tensor, count: int) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _compute_nparams_toprune(self.amount, t.numel())
        mask = default_mask.clone(memory_format=contiguous_format)
        if count:
            mask.view(-1)[self._choose(t, count)] = 0
        return mask


class RandomUnstructured(_UnstructuredBase):
    """Pruning method that removes elements chosen at random."""

    def _choose(self, t: Tensor, count: int) -> Tensor:
        return rand_like(t).view(-1).topk(count).indices

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(_UnstructuredBase):
    """Pruning method that removes the elements of smallest magnitude."""

    def _choose(self, t: Tensor, count: int) -> Tensor:
        return t.abs().reshape(-1).topk(count, largest=False).indices

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, importance_scores: Any = None) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomStructured(BasePruningMethod):
    """Pruning method that removes whole channels chosen at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1):
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        channels = _check_channels(t, self.dim)
        count = _compute_nparams_toprune(self.amount, channels)
        if not count:
            return default_mask
        chances = rand(channels)
        threshold = chances.kthvalue(count).values
        return default_mask * _channel_mask(t, self.dim, chances > threshold).to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, dim: int = -1) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Pruning method that removes the channels of smallest norm."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1):
        _validate_pruning_amount_init(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        channels = _check_channels(t, self.dim)
        count = _compute_nparams_toprune(self.amount, channels)
        if not count:
            return default_mask
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        kept = norm(t, p=self.n, dim=others).topk(channels - count, largest=True).indices
        return default_mask * _channel_mask(t, self.dim, kept).to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Any = None) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Pruning method that removes the elements that a given mask leaves out."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"expected a mask of shape {default_mask.shape}, got {self.mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


# -- functions --------------------------------------------------------------------------------------------------------
def identity(module: Module, name: str) -> Module:
    """Set up pruning of a parameter with a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements at random: a share (float) or a number (int) of them."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of smallest magnitude (or smallest score)."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the channels along `dim` of smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune where the mask is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[Any], pruning_method: type[Any], importance_scores: dict[Any, Any] | None = None, **kwargs: Any
) -> None:
    """Prune elements of several parameters, (module, name) pairs, as if they were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    importance = cat([scores.get((m, name), getattr(m, name)).reshape(-1) for m, name in pairs])
    default = cat([getattr(m, name + "_mask", ones_like(getattr(m, name))).reshape(-1) for m, name in pairs])
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method'
            f" {pruning_method} of type {method.PRUNING_TYPE}"
        )
    mask = container.compute_mask(importance, default)
    start = 0
    for module, name in pairs:
        parameter = getattr(module, name)
        custom_from_mask(module, name, mask=mask[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()


def remove(module: Module, name: str) -> Module:
    """Stop pruning a parameter; it keeps its pruned value."""
    hook = _take_hook(module, name)
    if hook is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    hook.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Return whether any parameter of the network is pruned."""
    return any(
        isinstance(hook, BasePruningMethod) for part in module.modules() for hook in part._forward_pre_hooks.values()
    )
