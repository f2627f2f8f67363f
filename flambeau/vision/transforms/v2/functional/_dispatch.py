"""Dispatch of functionals: which kernel runs for which type of input.

A *functional* is a name with a signature. Kernels are registered for types of input: plain tensors, PIL images, and the classes of
`tv_tensors`. A kernel gets a plain tensor and those of the arguments that it names; a kernel of boxes or points may also name their details
(format, canvas_size, clamping_mode) and may return (tensor, new canvas size). The result is wrapped like the input.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from flambeau import Tensor
from flambeau.core.naming import own_name
from flambeau.core.overrides import DisableTorchFunctionSubclass, with_attributes

from .....utils.pillow import is_pil
from ....tv_tensors import BoundingBoxes, Image, KeyPoints, TVTensor, Video
from ....tv_tensors._base import plain
from ...kernels.conversion import pil_to_tensor, to_pil_image


class PIL:
    """Key of PIL kernels in the dispatch tables, so that Pillow need not be imported."""


TENSORS = (Tensor, Image, Video)
_DETAILS = ("format", "canvas_size", "clamping_mode")


def functional(function: Callable, *kinds: type) -> Any:
    """Make the functional `affine` from its kernel `affine_image`, which provides signature and documentation and serves these kinds of input
    (by default tensors, images and videos)."""

    @with_attributes
    def face(inpt: Any, *args: Any, **kwargs: Any) -> Any:
        return _find(face, type(inpt), inpt)(inpt, *args, **kwargs)

    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    face.__signature__ = signature.replace(parameters=[first.replace(name="inpt"), *rest])
    face.__name__ = face.__qualname__ = function.__name__.rpartition("_")[0]
    face.__module__, face.__doc__ = function.__module__, function.__doc__
    face.kernels = {}
    face.names = tuple(p.name for p in rest)
    kernel(face, *(kinds or TENSORS))(function)
    return face


def kernel(face: Any, *kinds: type) -> Callable:
    """Register a kernel of this package for the kinds of input; plain tensors and images share one."""

    def register(function: Callable) -> Callable:
        for kind in kinds:
            face.kernels[kind] = _adapt(function, face.names, kind)
        return function

    return register


def _adapt(function: Callable, names: tuple[str, ...], kind: type) -> Callable:
    """Wrap a kernel so that it takes the functional's arguments and passes on those it declares."""
    accepted = tuple(inspect.signature(function).parameters)[1:]
    details = (
        tuple(name for name in accepted if name in _DETAILS and name not in names) if issubclass(kind, TVTensor) else ()
    )
    everything = all(name in accepted for name in names) and not details
    wraps = issubclass(kind, TVTensor)
    sized = issubclass(kind, (BoundingBoxes, KeyPoints))

    def arguments(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(names):
            raise TypeError(
                f"{function.__name__}() takes {len(names) + 1} positional arguments but {len(args) + 1} were given"
            )
        named = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in names or name in named:
                raise TypeError(f"{function.__name__}() got an unexpected or repeated keyword argument '{name}'")
            named[name] = value
        return {name: value for name, value in named.items() if name in accepted}

    def call(inpt: Any, *args: Any, **kwargs: Any) -> Any:
        if not wraps:
            return function(inpt, *args, **kwargs) if everything else function(inpt, **arguments(args, kwargs))
        with DisableTorchFunctionSubclass():
            value = plain(inpt)
            if everything:
                output = function(value, *args, **kwargs)
            else:
                output = function(value, **arguments(args, kwargs), **{name: getattr(inpt, name) for name in details})
        return _wrap(output, inpt, sized)

    return call


def _wrap(output: Any, inpt: Any, sized: bool) -> Any:
    wrap = type(inpt).wrap
    if sized and isinstance(output, tuple):
        tensor, canvas_size = output
        return wrap(tensor, inpt, canvas_size=tuple(canvas_size))
    if isinstance(output, tuple):
        return tuple(wrap(part, inpt) for part in output)
    return wrap(output, inpt) if isinstance(output, Tensor) else output


def _find(face: Any, kind: type, inpt: Any, passthrough: bool = False) -> Callable:
    table: dict[type, Callable] = face.kernels
    found = table.get(kind)
    if found is None:
        if issubclass(kind, TVTensor):
            found = next((table[base] for base in kind.__mro__ if base in table and base is not Tensor), None)
        elif issubclass(kind, Tensor):
            found = table.get(Tensor)
        elif is_pil(inpt):
            found = table.get(PIL)
    if found is None:
        if passthrough:
            return _pass_through
        known = ", ".join(sorted("PIL image" if base is PIL else base.__name__ for base in table))
        raise TypeError(f"Functional F.{face.__name__} supports inputs of type {known}, but got {kind} instead.")
    return found


def _pass_through(inpt: Any, *args: Any, **kwargs: Any) -> Any:
    return inpt


def call_kernel(face: Callable, inpt: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a functional as transforms do: inputs without a kernel pass unchanged."""
    if not hasattr(face, "kernels"):
        return face(inpt, *args, **kwargs)
    return _find(face, type(inpt), inpt, passthrough=True)(inpt, *args, **kwargs)


def through_tensor(function: Callable) -> Callable:
    """Make a kernel of PIL images that converts the image to a tensor, runs `function` and converts back."""

    @functools.wraps(function)
    def on_pil(image: Any, *args: Any, **kwargs: Any) -> Any:
        return to_pil_image(function(pil_to_tensor(image), *args, **kwargs), mode=image.mode)

    return on_pil


def mask_call(function: Any, mask: Tensor, *args: Any) -> Tensor:
    """Apply a kernel of images to a mask (H, W) or masks (N, H, W)."""
    if mask.ndim < 3:
        return function(mask.unsqueeze(0), *args).squeeze(0)
    return function(mask, *args)


def register_kernel(functional: Callable | str, tv_tensor_cls: type) -> Callable:
    """Register a user's kernel for a custom TVTensor class; it gets and returns instances of that class."""
    if isinstance(functional, str) or not hasattr(functional, "kernels"):
        raise ValueError(f"Kernels can only be registered on functionals, but got {functional}.")
    if not (isinstance(tv_tensor_cls, type) and issubclass(tv_tensor_cls, TVTensor)):
        raise ValueError(f"Kernels can only be registered for subclasses of TVTensor, but got {tv_tensor_cls}.")
    if own_name(tv_tensor_cls.__module__).startswith("flambeau.vision.tv_tensors"):
        raise ValueError(f"Kernels cannot be registered for the builtin tv_tensor classes, but got {tv_tensor_cls}.")
    table: dict[type, Callable] = functional.kernels
    if tv_tensor_cls in table:
        raise ValueError(f"Functional {functional.__name__} already has a kernel registered for type {tv_tensor_cls}.")

    def register(function: Callable) -> Callable:
        table[tv_tensor_cls] = function
        return function

    return register


def is_pure_tensor(inpt: Any) -> bool:
    """Return whether an input is a plain tensor, not a TVTensor."""
    return isinstance(inpt, Tensor) and not isinstance(inpt, TVTensor)
