"""What stands for a module, a function, a tensor, ... of PyTorch's in a test whose answers are recorded or replayed.

Whatever is done with it is a question to the session (`session.ask`), which answers with plain data or with another stand-in. Modules,
classes, functions and dtypes are *static*: they are known by their path, and their attributes by the table of names.
"""

from __future__ import annotations

import copy
import functools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from . import values

READABLE = {
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__version__",
    "__all__",
    "__members__",
    "__file__",
    "__signature__",
}
STATIC_TYPES = {"module": types.ModuleType, "class": type, "function": types.BuiltinFunctionType}


class StandIn:
    """Something of PyTorch's: the real thing while recording, only a name while replaying."""

    __slots__ = ("__weakref__", "answers_cell", "answers_key", "answers_kind", "answers_real", "answers_session")

    def __init__(self, session: Any, key: str, kind: str, real: Any = None) -> None:
        """`kind`: "module", "class", "function" or "static" of what is known by its path, else "a " and the path of its class."""
        for name, value in zip(("session", "key", "kind", "real", "cell"), (session, key, kind, real, None)):
            object.__setattr__(self, "answers_" + name, value)

    @property
    def __class__(self) -> Any:
        if self.answers_kind in STATIC_TYPES:
            return STATIC_TYPES[self.answers_kind]
        return self.answers_session.class_of(self)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._attribute(name)
        except AttributeError as problem:
            # Where Python 3.12 prints such an error it looks for similar names in dir(obj): a question that nobody recorded.
            problem.name, problem.obj = name, None
            raise

    def _attribute(self, name: str) -> Any:
        if name.startswith("answers_") or (name[:2] == name[-2:] == "__" and name not in READABLE):
            raise AttributeError(name)  # what Python, NumPy and pytest look for on their own is no question
        if is_static(self):
            return self.answers_session.attribute(self, name)
        return self.answers_session.ask("getattr", self, (name,))

    def __setattr__(self, name: str, value: Any) -> None:
        self.answers_session.ask("setattr", self, (name, value))

    def __delattr__(self, name: str) -> None:
        self.answers_session.ask("delattr", self, (name,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.answers_session.ask("call", self, args, kwargs)

    def __iter__(self) -> Iterator:
        found = self.answers_session.ask("iter", self, ())
        return found if found is self else iter(found)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.answers_session.ask("array", self, ())
        return array if dtype is None else array.astype(dtype)

    def __eq__(self, other: object) -> Any:
        if is_static(self) and (is_static(other) or not isinstance(other, StandIn)):
            return self is other
        return self.answers_session.ask("eq", self, (other,))

    def __ne__(self, other: object) -> Any:
        if is_static(self) and (is_static(other) or not isinstance(other, StandIn)):
            return self is not other
        return self.answers_session.ask("ne", self, (other,))

    __hash__ = object.__hash__

    def __instancecheck__(self, value: Any) -> bool:
        return self.answers_session.is_instance(value, self)

    def __subclasscheck__(self, kind: Any) -> bool:
        return kind is self or self.answers_session.is_subclass(kind, self)

    def __mro_entries__(self, bases: tuple) -> tuple:
        return (self.answers_session.base_for(self),)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("PyTorch's objects are not pickled here: the test needs the real PyTorch")

    def __copy__(self) -> Any:
        return self.answers_session.ask("copy", self, ())

    def __deepcopy__(self, memo: Any) -> Any:
        return self if is_static(self) else self.answers_session.ask("deepcopy", self, ())

    def __dir__(self) -> Any:
        return self.answers_session.ask("dir", self, ())


def is_static(value: Any) -> bool:
    """Whether a stand-in is known by its path, in every test."""
    return type(value) is StandIn and not value.answers_kind.startswith("a ")


def _listed(value: Any) -> Any:
    return value if hasattr(value, "__next__") else list(value)


# What is done with the real thing, by the name of the question.
OPERATIONS: dict[str, Callable] = {
    "getattr": getattr, "setattr": setattr, "delattr": delattr, "call": lambda f, *args, **kwargs: f(*args, **kwargs),
    "iter": _listed, "array": lambda value: value.__array__(), "copy": copy.copy, "deepcopy": copy.deepcopy, "dir": dir,
    "bool": bool, "int": int, "float": float, "complex": complex, "index": operator.index, "len": len, "str": str, "repr": repr,
    "format": format, "round": round, "next": next, "reversed": lambda value: list(reversed(value)),
    "enter": lambda value: value.__enter__(), "exit": lambda value, *args: value.__exit__(*args),
    "getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem, "contains": operator.contains,
    "divmod": divmod, "rdivmod": lambda a, b: divmod(b, a),
}  # fmt: skip
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]
PLACES = {"and": operator.and_, "or": operator.or_}
for _name in BINARY:
    _function = PLACES.get(_name) or getattr(operator, _name)
    OPERATIONS[_name] = _function
    OPERATIONS["r" + _name] = lambda a, b, f=_function: f(b, a)
    OPERATIONS["i" + _name] = getattr(operator, "i" + _name)
for _name in ["eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"]:
    OPERATIONS[_name] = getattr(operator, _name)


def _question(name: str) -> Callable:
    def method(self: StandIn, *args: Any) -> Any:
        return self.answers_session.ask(name, self, args)

    return method


for _name in OPERATIONS:
    if f"__{_name}__" not in vars(StandIn) and _name not in (
        "getattr",
        "setattr",
        "delattr",
        "array",
        "copy",
        "deepcopy",
    ):
        setattr(StandIn, f"__{_name}__", _question(_name))


def unwrap(value: Any) -> Any:
    """The real things in what a test gives to PyTorch."""
    if type(value) is StandIn:
        return value.answers_real
    if type(value) in (tuple, list, set, frozenset):
        found = [unwrap(v) for v in value]
        return value if all(a is b for a, b in zip(found, value)) else type(value)(found)
    if isinstance(value, tuple) and type(value).__module__ == values.__name__:
        return tuple(value) if type(value) is values.Size else value.answers_real
    if type(value) is dict or type(value).__name__ == "OrderedDict":
        found = {unwrap(k): unwrap(v) for k, v in value.items()}
        same = all(a is b for a, b in zip(found.values(), value.values())) and all(a is b for a, b in zip(found, value))
        return value if same else type(value)(found)
    if type(value) is slice:
        return slice(unwrap(value.start), unwrap(value.stop), unwrap(value.step))
    if type(value) is types.FunctionType:
        return _of_real_things(value)
    return value


def _of_real_things(function: types.FunctionType) -> Callable:
    """A test's function, for PyTorch to call, with the same parameters: what it closes over is real."""
    real = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, unwrap(function.__defaults__), _cells(function)
    )
    real.__kwdefaults__ = unwrap(function.__kwdefaults__)
    return functools.update_wrapper(real, function)


def _cells(function: types.FunctionType) -> tuple | None:
    """The variables a function closes over, stand-ins exchanged."""
    if function.__closure__ is None:
        return None
    cells = []
    for cell in function.__closure__:
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            cells.append(cell)
            continue
        real = unwrap(held) if type(held) in (StandIn, tuple, list, dict) else held
        cells.append(cell if real is held else types.CellType(real))
    return tuple(cells)
