"""Messages between workers: their form, the tensors in them, and the handlers that answer them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...core.tensor import Tensor
from ...futures import Future
from ..autograd.contexts import container
from .options import WorkerInfo


class Message(NamedTuple):
    """Message from one worker to another."""

    operation: str
    details: Any = None
    data: bytes = b""
    tensors: Sequence[Tensor] = ()
    differentiable: Sequence[
        bool
    ] = ()  # with a mark, the tensors of the context; without one, leaves that require a gradient
    places: Sequence[str | None] = ()  # the device each tensor is wanted on; None for the CPU
    mark: tuple[int, int] | None = None  # autograd context and number of the message in it
    back: dict[str, str] | None = None  # devices of the answer


Handler = Callable[[WorkerInfo, Message], Any]
handlers: dict[str, Handler] = {}
answered_at_once: set[str] = set()


def handler(operation: str, at_once: bool = False) -> Callable[[Handler], Handler]:
    """Declare the handler of a message. It returns a Message, a Future of one, or None."""

    def declare(function: Handler) -> Handler:
        handlers[operation] = function
        if at_once:
            answered_at_once.add(operation)
        return function

    return declare


# -- tensors in messages ------------------------------------------------------------------------------------------------------


def wanted_place(tensor: Tensor, devices: dict[str, str]) -> str | None:
    here = str(tensor.device)
    if here == "cpu" or here in devices:
        return devices.get(here)
    raise RuntimeError(
        "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before sending them over"
        " RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly configure device mapping. Request"
        f" device mapping is not available for destination; found tensor on {here}"
    )


def bare_values(tensor: Tensor, stays: bool) -> Tensor:
    """Return a tensor's values without its autograd history and without the rest of its storage."""
    bare = tensor.detach()
    if stays:
        return bare
    if bare.device.type != "cpu":
        return bare.cpu()
    if not bare.is_sparse and bare.untyped_storage().nbytes() > 2 * bare.numel() * bare.element_size():
        return bare.clone() if bare.is_contiguous() else bare.transpose(0, -1).contiguous().transpose(0, -1)
    return bare


def opened(message: Message, source: int) -> tuple[list[Tensor], Any]:
    """Return the tensors of a message, on their devices and with autograd history, and the autograd context they belong to."""
    tensors = [t if place is None else t.to(place) for t, place in zip(message.tensors, message.places, strict=True)]
    fresh = [t.detach() if flag else t for t, flag in zip(tensors, message.differentiable, strict=True)]
    if message.mark is None:
        return [t.requires_grad_(flag) for t, flag in zip(fresh, message.differentiable, strict=True)], None
    with_history = [t for t, flag in zip(fresh, message.differentiable, strict=True) if flag]
    return fresh, container.open_incoming(message.mark, with_history, source)


@handler("gradients")
def _gradients(source: WorkerInfo, message: Message) -> Future:
    tensors, _ = opened(message, source.id)
    return container.gradients(message.details, tensors)


@handler("release_context", at_once=True)
def _release(source: WorkerInfo, message: Message) -> None:
    container.release(message.details)
