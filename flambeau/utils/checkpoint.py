"""Activation checkpointing: a part of a network runs forward without saving tensors for backward, and again during backward.

Both of PyTorch's variants: with `use_reentrant=True` the part is one `autograd.Function` whose backward runs a separate backward pass;
otherwise saved tensors are replaced by their number, and the first one that is needed runs the part again to restore all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ..amp import autocast
from ..amp.state import get_autocast_dtype, is_autocast_available, is_autocast_cache_enabled, is_autocast_enabled
from ..autograd import Function, backward, enable_grad, no_grad
from ..autograd.graph import saved_tensors_hooks
from ..core.backend import backend_of
from ..core.device import device as Device
from ..core.generator import default_generator
from ..core.tensor import Tensor
from ._pytree import tree_leaves

if TYPE_CHECKING:
    from .selective_checkpoint import (
        SAC_IGNORED_OPS,
        CheckpointPolicy,
        SelectiveCheckpointContext,
        create_selective_checkpoint_contexts,
    )


class CheckpointError(RuntimeError):
    """Raised when the recomputation saves other tensors than the first run did."""


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return two contexts without effect."""
    return nullcontext(), nullcontext()


class _RunState:
    """State of the first run: random generators (of the CPU and of its arguments' devices) and autocast."""

    def __init__(self, args: tuple, preserve_rng_state: bool) -> None:
        devices = _devices(args)
        generators = [default_generator, *(backend_of(d).generator(d) for d in devices)] if preserve_rng_state else []
        self.states = [(g, g.state_bytes()) for g in generators]
        kinds = {"cpu", *(d.type for d in devices)}
        self.precision = [
            autocast(kind, get_autocast_dtype(kind), is_autocast_enabled(kind), is_autocast_cache_enabled())
            for kind in sorted(kinds)
            if is_autocast_available(kind)
        ]

    def note_draws(self) -> None:
        """Forget, after the first run, the generators from which it drew nothing: the second run draws nothing either."""
        self.states = [(generator, state) for generator, state in self.states if generator.state_bytes() != state]

    @contextmanager
    def restore(self) -> Iterator[None]:
        """Context manager: restore the random state and autocast settings of the first run."""
        with ExitStack() as stack:
            for generator, state in self.states:
                stack.callback(generator.go_back_to, generator.state_bytes())
                generator.go_back_to(state)
            for setting in self.precision:
                stack.enter_context(setting)
            yield


def _devices(args: Iterable[Any]) -> list[Any]:
    """Return the devices other than the CPU of tensors among the arguments."""
    tensors = (a for a in tree_leaves(args) if isinstance(a, Tensor))
    return list(dict.fromkeys(t.device for t in tensors if t.device.type not in ("cpu", "meta")))


class CheckpointFunction(Function):
    """Function whose backward pass runs its forward pass again: the reentrant form of `checkpoint`."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.function, ctx.surroundings = function, _RunState(args, preserve_rng_state)
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            result = function(*args)
        ctx.surroundings.note_draws()
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        args = list(ctx.args)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with ctx.surroundings.restore(), enable_grad():
            outputs = ctx.function(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no input requires gradients: the part would get none."""
    if not any(isinstance(i, Tensor) and i.requires_grad for i in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with every tensor detached, requiring gradients as before."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(i.detach().requires_grad_(i.requires_grad) if isinstance(i, Tensor) else i for i in inputs)


def get_device_states(*args: Any) -> tuple[list[Any], list[Any]]:
    """Return the devices other than the CPU of tensors among the arguments, and the states of their generators."""
    devices = _devices(args)
    return devices, [backend_of(d).generator(d).get_state() for d in devices]


def set_device_states(devices: list[Any], states: list[Any], *, device_type: str | None = None) -> None:
    """Set the generators of these devices to these states, as `get_device_states` found them."""
    for device, state in zip(devices, states):
        place = Device(device_type or "cuda", device) if isinstance(device, int) else Device(device)
        backend_of(place).generator(place).set_state(state)


class _AllRestored(BaseException):
    """Raised to end the second run as soon as it has saved what the first one did."""


_early_stop: list[bool] = []  # what the open `set_checkpoint_early_stop` contexts say, the innermost last


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Context manager: set whether parts checkpointed inside run again only as far as needed (the default) or to their end."""
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()


class _Recomputation:
    """Tensors that the first run of a checkpointed function saved, by number, to be restored by the second run."""

    def __init__(self, rerun: Callable[[], Any], reads: Any, check_metadata: bool, early_stop: bool):
        self.rerun = rerun
        self.reads = reads  # its arguments, which compiled functions keep for it
        self.check_metadata = check_metadata
        self.early_stop = early_stop
        self.first: list[tuple] = []  # shape and dtype of each saved tensor
        self.complete = False  # whether the first run has ended: a backward pass in it needs a second run before
        self.found: list[Tensor] | None = None
        self.left = 0  # saved tensors that have not been asked for since the last second run

    def pack(self, tensor: Tensor) -> int:
        self.first.append((tensor.shape, tensor.dtype))
        return len(self.first) - 1

    def unpack(self, number: int) -> Tensor:
        if self.found is None or number >= len(self.found):
            self.found = self._run_again()
            self.left = len(self.found)
        tensor = self.found[number]
        self.left -= 1
        if self.left == 0:  # each was used once: what was found need not be kept until the graph dies
            self.found = None
        return tensor

    def _run_again(self) -> list[Tensor]:
        found: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            found.append(tensor.detach())
            if self.early_stop and len(found) == len(self.first):
                raise _AllRestored
            return tensor

        with enable_grad(), saved_tensors_hooks(keep, lambda t: t), suppress(_AllRestored):
            self.rerun()
        if not self.complete:
            del found[len(self.first) :]
        if len(found) != len(self.first):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and"
                f" recomputation.\nNumber of tensors saved during forward: {len(self.first)}\nNumber of tensors saved during"
                f" recomputation: {len(found)}"
            )
        for number, (tensor, (shape, dtype)) in enumerate(zip(found, self.first)):
            if self.check_metadata and (tensor.shape != shape or tensor.dtype is not dtype):
                raise CheckpointError(
                    "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during"
                    f" the forward pass.\ntensor at position {number}:\nsaved metadata: {{'shape': {shape}, 'dtype': {dtype}}}\n"
                    f"recomputed metadata: {{'shape': {tensor.shape}, 'dtype': {tensor.dtype}}}"
                )
        return found


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, ...]] = noop_context_fn, determinism_check: str = "default",
    debug: bool = False, early_stop: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """Call function(*args) without keeping the tensors it saves for backward: it is run again when its gradients are needed.

    The second run is under the same autocast and sees the random numbers of the first unless `preserve_rng_state=False` is
    given. It ends when all that the first saved is there, or with `early_stop=False` when the function does.
    `determinism_check="none"` leaves out the comparison of shapes and dtypes; `debug` changes nothing: messages name the
    tensors that differ either way.
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'] but got {determinism_check}")
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly: use_reentrant=False is"
            " recommended, and True is what is used now.",
            stacklevel=2,
        )
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    surroundings = _RunState((args, kwargs), preserve)
    first_context, second_context = context_fn()

    def rerun() -> None:
        with surroundings.restore(), second_context:
            function(*args, **kwargs)

    stops = _early_stop[-1] if _early_stop else early_stop
    run = _Recomputation(rerun, (args, kwargs), determinism_check == "default", stops)
    with saved_tensors_hooks(run.pack, run.unpack), first_context:
        result = function(*args, **kwargs)
        run.complete = True
    surroundings.note_draws()
    if not run.complete:
        raise RuntimeError("torch.utils.checkpoint: a context of context_fn suppressed an exception of the function")
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a chain of modules in `segments` parts, all but the last of them checkpointed."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(chain) // segments

    def part(start: int, stop: int) -> Callable:
        def run(value: Any) -> Any:
            for function in chain[start:stop]:
                value = function(value)
            return value

        return run

    for k in range(segments - 1):
        input = checkpoint(
            part(k * size, (k + 1) * size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve
        )
    return part((segments - 1) * size, len(chain))(input)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in (
            "SAC_IGNORED_OPS",
            "CheckpointPolicy",
            "SelectiveCheckpointContext",
            "create_selective_checkpoint_contexts",
        ):
            from . import selective_checkpoint  # noqa: PLC0415 - it needs PyTorch's operators, which plain checkpoints do not

            return getattr(selective_checkpoint, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "SAC_IGNORED_OPS", "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "SelectiveCheckpointContext",
    "check_backward_validity", "checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts", "detach_variable",
    "get_device_states", "noop_context_fn", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip
