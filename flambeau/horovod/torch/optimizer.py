"""DistributedOptimizer: an optimizer whose gradients are averaged over all processes, while the backward pass still runs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from ...core.graph import gradient_edge
from ...core.tensor import Tensor
from . import operations, state
from .compression import Compression
from .state import Adasum, Average, ProcessSet, Sum, global_process_set


class _DistributedMixin:
    """Mixin for the class of the wrapped optimizer."""

    param_groups: list[dict[str, Any]]

    def _distribute(
        self, named_parameters: Any, compression: Any, passes: int, op: str, predivide: float, sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:  # fmt: skip
        self._compression, self._passes, self._op = compression, passes, op
        self._predivide, self._sparse_as_dense, self.process_set = predivide, sparse_as_dense, process_set
        self._parameter_names = self._names(named_parameters)
        self._handles: dict[Tensor, tuple[Any, Any]] = {}
        self._left = dict.fromkeys(self._parameter_names, passes)
        self._synchronized, self._should_synchronize = False, True
        self._nodes: list[Any] = []
        if (process_set.size() or 1) > 1 or op == Adasum:
            for parameter in self._parameter_names:
                if parameter.requires_grad:
                    self._watch(parameter)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _names(self, named_parameters: Any) -> dict[Tensor, str]:
        parameters = self._parameters()
        named = list(named_parameters) if named_parameters is not None else []
        if any(not isinstance(pair, tuple) for pair in named):
            raise ValueError(
                "named_parameters should be a sequence of tuples (name, parameter), usually model.named_parameters()"
            )
        labels = [name for name, _ in named]
        twice = {name for name in labels if labels.count(name) > 1}
        if twice:
            raise ValueError(
                f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(sorted(twice))}"
            )
        if not named:
            return {p: f"allreduce.noname.{number}" for number, p in enumerate(parameters)}
        known = {p: name for name, p in named}
        if any(p not in known for p in parameters):
            raise ValueError(
                f"named_parameters was specified, but one or more model parameters were not named: {len(parameters)} parameters"
                f" of the optimizer, {len(known)} names"
            )
        return known

    def _watch(self, parameter: Tensor) -> None:
        edge = gradient_edge(parameter)
        assert edge is not None
        self._nodes.append(edge[0])  # which only a graph would keep alive
        edge[0].register_hook(lambda *_: self._on_gradient(parameter))

    def _on_gradient(self, parameter: Tensor) -> None:
        if parameter in self._handles and self._handles[parameter][0] is not None and self._left[parameter] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase"
                " backward_passes_per_step to accumulate gradients locally."
            )
        self._left[parameter] -= 1
        if self._left[parameter] == 0:
            self._handles[parameter] = self._start(parameter)

    def _factors(self) -> tuple[str, float, float]:
        if self._op == Average and self._predivide != 1.0:
            return Sum, 1.0 / self._predivide, self._predivide / (self.process_set.size() or 1)
        return self._op, 1.0, 1.0

    def _start(self, parameter: Tensor) -> tuple[Any, Any]:
        gradient = parameter.grad
        if gradient is None:
            gradient = parameter.detach().new_zeros(parameter.shape)
            parameter.grad = gradient
        name = self._parameter_names[parameter]
        if gradient.is_sparse:
            if not self._sparse_as_dense:
                return operations.sparse_allreduce_async(gradient.detach(), name, self._op, self.process_set), None
            gradient = gradient.to_dense()  # `synchronize` makes it sparse again
        small, context = self._compression.compress(gradient.detach().contiguous())
        op, pre, post = self._factors()
        return operations.allreduce_async(small, None, name, op, pre, post, self.process_set), context

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._passes = passes
        self._left = dict.fromkeys(self._left, passes)

    def synchronize(self) -> None:
        """Wait for the averages, and store them in the gradients."""
        if (self.process_set.size() or 1) > 1 or self._op == Adasum:
            for parameter in self._parameter_names:
                if parameter.requires_grad and parameter not in self._handles:
                    self._handles[parameter] = self._start(parameter)
        for parameter, (handle, context) in self._handles.items():
            if callable(handle):
                parameter.grad = handle()
            else:
                average = self._compression.decompress(operations.synchronize(handle), context)
                before: Any = parameter.grad
                if before.is_sparse:
                    parameter.grad = average.to_sparse(before.sparse_dim())
                else:
                    before.detach().copy_(average)
            self._left[parameter] = self._passes
        self._handles.clear()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Context manager: `step` does not wait, because `synchronize` has been called."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize():"
                    " gradients are averaged a second time.",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        if self._handles:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize()."
                " This is prohibited as it can cause a race condition."
            )
        return super().zero_grad(*args, **kwargs)  # type: ignore[misc]


def DistributedOptimizer(
    optimizer: Any,
    named_parameters: Any = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: str = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the optimizer with gradients averaged over all processes before every step."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups < 0:
        raise ValueError("num_groups has to be a non-negative integer.")
    if groups is not None and not (isinstance(groups, list) and groups) and not isinstance(groups, int):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    state.rank()  # an error if hvd.init() was forgotten
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_DistributedMixin, kind), {"__module__": kind.__module__})
    optimizer._distribute(
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
    )
    return optimizer
