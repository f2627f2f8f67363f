"""backward(), grad(), and the autograd methods of tensors."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ..core.graph import INFERENCE, AccumulateGrad, GradientEdge, HookHandle, gradient_edge
from ..core.named import is_named
from ..core.naming import submodule
from ..core.overrides import overridable, refuse_real_tensors
from ..core.tensor import Tensor
from ..ops.creation.filled import ones, ones_like
from .duals import carry
from .engine import TensorHook, run_backward


def _as_list(value: Any) -> list[Any]:
    """Return a list of one tensor, or of any iterable of them: a list, a generator, the values of a dictionary."""
    return [value] if isinstance(value, (Tensor, GradientEdge)) or not isinstance(value, Iterable) else list(value)


def _describe_output(out: Any) -> tuple[Any, ...] | None:
    """Return (shape, dtype, device) of an output, a tensor or an edge of the graph; None if the edge's node does not know them."""
    if isinstance(out, GradientEdge):
        if not isinstance(out.node, AccumulateGrad):
            return out.node.output_info and out.node.output_info[out.output_nr]
        out = out.node.variable
    return out.shape, out.dtype, out.device


def _without_names(g: Any) -> Tensor:
    warnings.warn(
        f"Autograd was passed a named grad tensor with dims {list(g.names)}. Autograd does not yet support named tensor semantics, so"
        " all names will be ignored. In practice all computed gradients will still be correct according to regular tensor semantics.",
        UserWarning,
        stacklevel=5,
    )
    return g._value


def _starting_gradients(outputs: list[Any], gradients: list[Any]) -> list[Tensor]:
    """Return the gradients to start from: ones for scalar outputs, given ones after checking shape and dtype."""
    result: list[Tensor] = []
    for i, (out, g) in enumerate(zip(outputs, gradients)):
        known = _describe_output(out)
        if is_named(g):
            g = _without_names(g)
        if known is None and isinstance(g, Tensor):
            result.append(g)
            continue
        shape, dtype, device = known or ((0,), None, None)
        if g is None:
            if isinstance(out, Tensor) and not out.requires_grad:
                raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
            if math.prod(shape) != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if not dtype.is_floating_point:
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {dtype}")
            g = ones(shape, dtype=dtype, device=device) if isinstance(out, GradientEdge) else ones_like(out)
        elif not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        elif g.shape != shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {shape}."
            )
        elif g.dtype.is_complex != dtype.is_complex:
            raise RuntimeError(
                f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype:"
                f" grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {dtype}."
            )
        elif g.dtype is not dtype:
            g = g.to(dtype)
        result.append(g)
    return result


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Sum the gradients of `tensors` into the `.grad` of the graph's leaves (or of `inputs` only)."""
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("backward(): grad_variables is the former name of grad_tensors: give only one of them")
        grad_tensors = grad_variables
    outputs = _as_list(tensors)
    given = _as_list(grad_tensors) if grad_tensors is not None else [None] * len(outputs)
    if len(given) != len(outputs):
        refuse_real_tensors([grad_tensors])
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    if inputs is not None:
        inputs = _inputs_list(inputs, "backward")
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    gradients = _starting_gradients(outputs, given)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph:
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient"
            " which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you"
            " have to use this function, make sure to reset the .grad fields of your parameters to None after use to break"
            " the cycle and avoid the leak.",
            stacklevel=2,
        )
    found = run_backward(outputs, gradients, keep, create_graph, inputs, True)
    for tensor, g in zip(inputs or (), found):
        if g is not None and isinstance(tensor, Tensor) and not tensor.is_leaf:  # leaves have accumulated theirs
            meta = tensor._ensure_autograd()
            meta.grad = g if meta.grad is None else meta.grad + g


def _inputs_list(inputs: Any, function: str) -> list[Any]:
    if isinstance(inputs, dict):
        if type(inputs) is not dict:
            raise TypeError(f"{function}(): inputs given by name must be a dict, not a {type(inputs).__name__}")
        return list(inputs.values())
    return _as_list(inputs)


@overridable
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Return the gradients of `outputs` with respect to `inputs` instead of accumulating them: a tuple, or for a dict of inputs a dict with
    the same keys."""
    if isinstance(inputs, dict):
        named = _inputs_list(inputs, "grad")
        if not named:
            raise RuntimeError("`inputs` argument to `grad()` cannot be empty when it is a dict.")
        found = grad(
            outputs, named, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched,
            materialize_grads,
        )  # fmt: skip
        return dict(zip(inputs, found))
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    outs, ins = _as_list(outputs), _as_list(inputs)
    if not ins:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    given = _as_list(grad_outputs) if grad_outputs is not None else [None] * len(outs)
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched_grad(outs, ins, given, allow_unused, materialize_grads, create_graph)
    gradients = _starting_gradients(outs, given)
    results = run_backward(outs, gradients, keep, create_graph, ins, False)
    for i, g in enumerate(results):
        if g is None:
            if not allow_unused:
                raise RuntimeError(
                    f"The differentiated Tensor at index {i} appears to not have been used in the graph. Set"
                    " allow_unused=True if this is the desired behavior."
                )
            if materialize_grads:
                results[i] = _zeros_for(ins[i], create_graph)
    return tuple(results)


def _zeros_for(wanted: Any, create_graph: bool) -> Tensor:
    if not isinstance(wanted, Tensor):
        raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
    return wanted.new_zeros(wanted.shape).requires_grad_(create_graph)


def _batched_grad(
    outs: list[Any], ins: list[Any], given: list[Any], allow_unused: bool, materialize: bool, create_graph: bool
) -> tuple[Any, ...]:
    """Run many backward passes at once: vmap over the gradients of the outputs."""
    for i, (out, g) in enumerate(zip(outs, given)):
        if g is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if g.shape[1:] != out.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The"
                " sizes of the remaining dimensions are expected to match the shape of corresponding output, but a mismatch"
                f" was detected: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {out.shape}."
            )
    reached: list[int] = []

    def one(*vectors: Tensor) -> tuple[Any, ...]:
        found = grad(outs, ins, vectors, True, create_graph, True, allow_unused, False, materialize)
        reached[:] = [i for i, g in enumerate(found) if g is not None]
        return tuple(g for g in found if g is not None)

    found = vmap_of(one, given)
    results: list[Any] = [None] * len(ins)
    for i, g in zip(reached, found):
        results[i] = g
    return tuple(results)


def vmap_of(function: Callable[..., Any], batches: list[Any]) -> Any:
    """Apply `func.vmap`, which is imported on first use: it is in a higher layer and brings the batching rules with it."""
    return submodule(__package__.rpartition(".")[0], "func").vmap(function)(*batches)


# -- methods of tensors -------------------------------------------------------------------------------------------------


def tensor_backward(
    self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Compute the gradients of this tensor with respect to the leaves of its graph."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> HookHandle:
    """Call `hook(grad)` when the gradient of this tensor is known; a returned tensor replaces it."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    edge = gradient_edge(self)
    assert edge is not None
    node, output_nr = edge
    meta = self._ensure_autograd()
    if node.prehooks is None:
        node.prehooks = {}
    if self.is_leaf:  # the accumulator is only weakly held: the hooks keep it alive with the tensor
        meta.hooks = {"node": node}
    return HookHandle(node.prehooks, TensorHook(hook, output_nr))  # type: ignore[arg-type]


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[..., Any]) -> HookHandle:
    """Call `hook(tensor)` after a gradient has been added to this leaf's `.grad`."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if not self.is_leaf:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    meta = self._ensure_autograd()
    if meta.post_hooks is None:
        meta.post_hooks = {}
    return HookHandle(meta.post_hooks, hook)


def retain_grad(self: Tensor) -> None:
    """Store the gradient of a tensor that is not a leaf in its `.grad`."""
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self.is_leaf:
        return
    meta = self._ensure_autograd()
    node = self.grad_fn
    assert node is not None
    if node.retain is None:
        node.retain = {}
    node.retain[meta.output_nr] = weakref.ref(self)
    meta.retains_grad = True


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Switch recording for this leaf on or off."""
    self.requires_grad = requires_grad
    return self


def detach_(self: Tensor) -> Tensor:
    """Detach this tensor from the graph that made it, in place."""
    if self._base is not None:
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training,"
            " and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be"
            " called on these gradients."
        )
    if self._autograd is not None:
        self._autograd.grad_fn, self._autograd.output_nr, self._autograd.requires_grad = None, 0, False
    if "_tangent" in self.__dict__:
        carry(self, None)
    return self


def is_inference(self: Tensor) -> bool:
    """Return whether the tensor was made in inference mode."""
    return self._storage.version >= INFERENCE


def _retains_grad(self: Tensor) -> bool:
    """Return whether the gradient of this tensor, which is no leaf, is kept, too."""
    return self._autograd is not None and self._autograd.retains_grad


METHODS = {
    "backward": tensor_backward,
    "register_hook": register_hook,
    "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
    "retain_grad": retain_grad,
    "requires_grad_": requires_grad_,
    "detach_": detach_,
    "is_inference": is_inference,
    "retains_grad": property(_retains_grad),
}


def bind() -> None:
    """Add the autograd methods to the tensor class."""
    for name, method in METHODS.items():
        setattr(Tensor, name, method)
