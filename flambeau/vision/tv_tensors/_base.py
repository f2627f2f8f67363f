"""Base of tensors with a content type (images, boxes, masks, ...); results of arithmetic are plain tensors.

`image + 1` is a plain tensor: an operator does not know whether its result is still an image. Only copies keep the type (clone, to, detach,
requires_grad_), unless `set_return_type("TVTensor")` asks for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import flambeau
from flambeau import Tensor
from flambeau.core.overrides import DisableTorchFunctionSubclass
from flambeau.core.uninterrupted import uninterrupted

D = TypeVar("D", bound="TVTensor")

_KIND_KEPT = (Tensor.clone, Tensor.to, Tensor.detach, Tensor.requires_grad_)


class _ReturnType:
    """Switch: whether operators on TVTensors return TVTensors."""

    keep_kind = False


class set_return_type:
    """Chooses what operators on TVTensors return: "Tensor" (the default) or "TVTensor"; a switch, or a context manager.

    >>> image = flambeau.vision.tv_tensors.Image(flambeau.zeros(1, 2, 2))
    >>> with flambeau.vision.tv_tensors.set_return_type("TVTensor"):
    ...     print(type(image + 1).__name__)
    Image
    """

    def __init__(self, return_type: str) -> None:
        self.before = _ReturnType.keep_kind
        choices = {"tensor": False, "tvtensor": True}
        if return_type.lower() not in choices:
            raise ValueError(f"return_type must be 'TVTensor' or 'Tensor', got {return_type}")
        _ReturnType.keep_kind = choices[return_type.lower()]

    def __enter__(self) -> None:
        pass

    @uninterrupted
    def __exit__(self, *args: Any) -> None:
        _ReturnType.keep_kind = self.before


def plain(value: Tensor) -> Tensor:
    """Return an ordinary tensor over the same memory: kernels work on these, so that no operator looks for overrides."""
    if type(value) is Tensor:
        return value
    with DisableTorchFunctionSubclass():
        return value.as_subclass(Tensor)


class TVTensor(Tensor):
    """A tensor with a content type. Derive from it, and register kernels, so that transforms support a type of your own."""

    _known_when_made = True  # programs that import transforms and never make one pay nothing for it

    @staticmethod
    def _to_tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Tensor:
        if requires_grad is None:
            requires_grad = data.requires_grad if isinstance(data, Tensor) else False
        return plain(flambeau.as_tensor(data, dtype=dtype, device=device)).requires_grad_(requires_grad)

    @classmethod
    def _of(cls: type[D], tensor: Tensor, **details: Any) -> D:
        with DisableTorchFunctionSubclass():
            result = tensor.as_subclass(cls)
        for name, value in details.items():
            setattr(result, name, value)
        return result

    @classmethod
    def _detail_names(cls) -> tuple[str, ...]:
        """Return the names of an instance's details besides its values, such as a canvas size."""
        return ()

    @classmethod
    def wrap(cls: type[D], tensor: Tensor, like: Any, **details: Any) -> D:
        """Return `tensor` as this type, with the details of `like` unless `details` overrides them."""
        names = cls._detail_names()
        return cls._of(tensor, **{name: details[name] if name in details else getattr(like, name) for name in names})

    @classmethod
    def _wrap_all(cls, output: Any, like: Any) -> Any:
        if isinstance(output, Tensor):
            return output if isinstance(output, cls) else cls.wrap(output, like)
        if isinstance(output, (tuple, list)):
            parts = [cls._wrap_all(part, like) for part in output]
            if type(output) in (tuple, list):
                return type(output)(parts)
            return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
        return output

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # As the base class does: kinds that are not related refuse to mix.
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            output = func(*args, **(kwargs or {}))
        if _ReturnType.keep_kind or func in _KIND_KEPT:
            if args and isinstance(args[0], cls):
                return cls._wrap_all(output, args[0])
            return output
        if isinstance(output, cls):  # an in-place operator returns its own argument
            return plain(output)
        return output

    def _make_repr(self, **details: Any) -> str:
        extra = ", ".join(f"{name}={value}" for name, value in details.items())
        return f"{super().__repr__()[:-1]}, {extra})"

    def __deepcopy__(self: D, memo: dict[int, Any]) -> D:
        copied = plain(self).detach().clone().requires_grad_(self.requires_grad)
        return type(self).wrap(copied, self)


def wrap(wrappee: Tensor, *, like: Tensor, **kwargs: Any) -> Any:
    """Return `wrappee` as the type of `like`, with its details (format, canvas size, ...) unless given."""
    rewrap = getattr(type(like), "wrap", None)
    if rewrap is None:
        return wrappee.as_subclass(type(like))
    return rewrap(wrappee, like, **kwargs)
