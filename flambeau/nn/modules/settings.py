"""Layers whose arguments are declared once, as annotated names of the class: the constructor, the printed form and TorchScript's constants
follow from them."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .module import Module

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**options):  # what a type checker reads: Python has it only since 3.11
        return lambda function: function


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
