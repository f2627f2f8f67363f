"""Layers whose arguments are declared once: as annotated names of the class, from which the constructor, the printed form and TorchScript's
constants follow (`settings`), or by the constructor of another layer (`extending`)."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from ...core.records import dataclass_transform
from .module import Module

Layer = TypeVar("Layer", bound=type)


class Declared(Module):
    """A layer whose class is decorated with `settings`."""

    _settings: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check and complete the settings, once they are attributes."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._settings)


@dataclass_transform(eq_default=False)
def settings(cls: Layer) -> Layer:
    """Class decorator: give a layer the constructor whose arguments are its annotated names, in their order and with their values as
    defaults. The constructor keeps them as attributes and calls `__post_init__`.

    >>> @settings
    ... class Scale(Declared):
    ...     factor: float = 2.0
    ...     def forward(self, input):
    ...         return input * self.factor
    >>> Scale(3.0)
    Scale(factor=3.0)
    """
    layer: Any = cls
    own = vars(cls)
    names = [name for name, kind in own["__annotations__"].items() if not str(kind).startswith("ClassVar")]
    fields: list[Any] = []
    for name in names:
        field = dataclasses.field(default=own[name]) if name in own else dataclasses.field()
        fields.append((name, own["__annotations__"][name], field))
    for name in set(names) & set(own):
        delattr(cls, name)
    space = {"__module__": cls.__module__, "__post_init__": layer.__post_init__}
    assign: Any = vars(dataclasses.make_dataclass(cls.__name__, fields, namespace=space, repr=False, eq=False))[
        "__init__"
    ]

    @functools.wraps(assign)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super(Declared, self).__init__()  # a mixin may stand between the layers and Module
        assign(self, *args, **kwargs)

    layer.__init__ = __init__
    layer._settings = tuple(names)
    if "__constants__" not in own:
        layer.__constants__ = names
    return cls


def extending(
    parent: type, *, before: str = "", without: Sequence[str] = (), **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a constructor `__init__(self, <own>, **rest)`: add the parameters of the parent's constructor, which arrive in `rest`.

    A parameter of both has the own default; the others are inserted `before` the named one, or at the end. `without` leaves some out, and
    `defaults` replaces defaults of the parent.

    >>> class Rotated(nn.Linear):
    ...     @extending(nn.Linear, before="device")
    ...     def __init__(self, angle=0.0, **rest):
    ...         super().__init__(**rest)
    >>> inspect.signature(Rotated)
    <Signature (in_features, out_features, bias=True, angle=0.0, device=None, dtype=None)>
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = dict(list(inspect.signature(function).parameters.items())[1:-1])
        listed: list[inspect.Parameter] = []
        for p in list(inspect.signature(parent.__init__).parameters.values())[1:]:  # type: ignore[misc]
            if p.name == before or (p.kind is p.VAR_KEYWORD and not before):
                listed += own.values()
                own = {}
            if p.name not in without:
                listed.append(own.pop(p.name, p.replace(default=defaults.get(p.name, p.default))))
        listed += own.values()
        named = [p for p in listed if p.kind is not p.VAR_KEYWORD]
        header = [p.name if p.default is p.empty else f"{p.name}=_{p.name}" for p in named]
        passed = [f"{p.name}={p.name}" for p in named]
        more = [f"**{p.name}" for p in listed if p.kind is p.VAR_KEYWORD]
        space: dict[str, Any] = {f"_{p.name}": p.default for p in named} | {"function": function}
        text = f"def __init__(self, {', '.join(header + more)}):\n    function(self, {', '.join(passed + more)})"
        exec(text, space)  # noqa: S102 - made of parameter names only
        made = space["__init__"]
        made.__module__, made.__qualname__, made.__doc__ = function.__module__, function.__qualname__, function.__doc__
        made.__annotations__ = {p.name: p.annotation for p in listed if p.annotation is not p.empty}
        return made

    return decorate
