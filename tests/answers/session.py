"""Who answers for PyTorch in this process: itself, itself while a tape listens, or the tapes."""

from __future__ import annotations

import collections
import enum
import importlib
import importlib.util
import inspect
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from . import values
from .stand_in import OPERATIONS, StandIn, is_static, unwrap
from .store import Store
from .tape import Tape, warn_again, warned

FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType, property,
)  # fmt: skip
BY_TEXT = ("dtype", "layout", "memory_format", "qscheme")
FAMILIES = ("torch", "torchvision")


class Answered(Exception):
    """Raised to leave the search for a path."""


class Session:
    """The mode of this process, the running test's tape, and the stand-ins known by their path."""

    def __init__(self) -> None:
        self.mode = "live" if importlib.util.find_spec("torch") else "replay"
        self.store = Store()
        self.depth = 0  # of PyTorch's calls, while recording: what a test's own functions do inside them is no question
        self.tape = Tape("nothing")
        self.statics: dict[str, StandIn] = {}
        self.wrapped: dict[int, StandIn] = {}

    # what a stand-in asks

    def ask(self, name: str, subject: StandIn, args: tuple, kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.mode == "record" and self.depth:
            return OPERATIONS[name](subject.answers_real, *unwrap(args), **unwrap(kwargs))
        question = (
            f"{name} {self.known(subject)} {values.describe(args, self.known)} {values.describe(kwargs, self.known)};"
        )
        if self.mode == "replay":
            return self._replayed(self.tape.read(question))
        return self._recorded(question, name, subject, args, kwargs)

    def _replayed(self, answer: Any) -> Any:
        if isinstance(answer, dict) and "warns" in answer:
            warn_again(answer["warns"][0])
            answer = answer["warns"][1]
        if isinstance(answer, dict) and "raises" in answer:
            name, base, args = answer["raises"]
            raise values.exception(name, base)(*values.decode(args, self.store.arrays(self.tape.key), self._opaque))
        return values.decode(answer, self.store.arrays(self.tape.key), self._opaque)

    def _recorded(self, question: str, name: str, subject: StandIn, args: tuple, kwargs: dict) -> Any:
        tape, before = self.tape, self.tape.objects
        if subject.answers_cell is not None:
            subject.answers_cell.cell_contents = subject.answers_real
        self.depth += 1
        caught: list = []
        problem, result = None, None
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = OPERATIONS[name](subject.answers_real, *unwrap(args), **unwrap(kwargs))
        except Exception as raised:
            problem = raised
        finally:
            self.depth -= 1
        if problem is None:
            result = self.wrap(result, "getattr" if name == "getattr" else "call")
            answer = values.encode(result, self.store.arrays(tape.key), lambda v: self._kept(v, before))
        else:
            told = problem.args if all(type(a) in values.PLAIN for a in problem.args) else (str(problem),)
            kind = type(problem)
            answer = {"raises": [kind.__name__, values.base_of(kind), {"tuple": list(told)}]}
        tape.write(question, {"warns": [warned(caught), answer]} if caught else answer)
        if problem is not None:
            raise problem
        warn_again(warned(caught))
        return result

    def _kept(self, value: Any, before: int) -> Any:
        """JSON for a stand-in: by its path, as one more object of a class, or as one that was named before."""
        if type(value) is not StandIn:
            raise TypeError(f"{type(value)} cannot be recorded")
        if is_static(value):
            return {value.answers_kind: value.answers_key}
        key, _, number = value.answers_key.rpartition("#")
        if key == self.tape.key and int(number) > before:
            return {"new": [int(number), value.answers_kind[2:]]}
        return {"old": value.answers_key}

    def _opaque(self, kept: dict) -> StandIn:
        ((kind, content),) = kept.items()
        if kind == "new":
            self.tape.objects = max(self.tape.objects, content[0])
            made = StandIn(self, f"{self.tape.key}#{content[0]}", "a " + content[1])
            self.store.objects[made.answers_key] = made
            return made
        if kind == "old":
            return self.store.objects[content]
        if kind == "exception":
            return values.exception(*content)  # type: ignore[return-value]
        return self.static(content, kind)

    # names

    def attribute(self, parent: StandIn, name: str) -> Any:
        """An attribute of something static: from the table of names while replaying, put there while recording."""
        if self.mode == "record":
            if self.depth:
                return getattr(parent.answers_real, name)
            return self._recorded_attribute(parent, name)
        self.tape.touched = True
        known = self.store.names.get(parent.answers_key, {})
        if name not in known:
            if not self.tape.recorded:
                pytest.skip(
                    f"{parent.answers_key}.{name} of PyTorch, which is not installed, is not recorded",
                    allow_module_level=True,
                )
            self.tape.stale(f"{parent.answers_key}.{name} is not recorded")
        if known[name] == {"missing": True}:
            raise AttributeError(f"module '{parent.answers_key}' has no attribute '{name}'")
        return values.decode(known[name], values.Arrays(), self._opaque)

    def _recorded_attribute(self, parent: StandIn, name: str) -> Any:
        table = self.store.names.setdefault(parent.answers_key, {})
        try:
            self.depth += 1
            real = (
                inspect.signature(parent.answers_real)
                if name == "__signature__"
                else getattr(parent.answers_real, name)
            )
        except (AttributeError, ValueError) as problem:
            table[name] = {"missing": True}
            raise AttributeError(*problem.args) from None
        finally:
            self.depth -= 1
        if isinstance(real, type) and issubclass(real, BaseException):
            table[name] = {"exception": [real.__name__, values.base_of(real)]}
            return real
        found = self.wrap(real, f"{parent.answers_key}.{name}")
        arrays = values.Arrays()
        table[name] = values.encode(found, arrays, lambda v: self._kept(v, 0))
        if arrays.block:
            raise TypeError(f"{parent.answers_key}.{name} is an array")
        return found

    def static(self, path: str, kind: str, real: Any = None) -> StandIn:
        if path not in self.statics:
            self.statics[path] = StandIn(self, path, kind, real)
        return self.statics[path]

    def class_of(self, value: StandIn) -> Any:
        if self.mode == "record":
            kind = type(value.answers_real)
            return kind if kind.__module__ in ("builtins", "collections") else self.wrap(kind, "call")
        path = value.answers_kind[2:] if not is_static(value) else self.store.classes["of " + value.answers_key][0]
        module, _, name = path.rpartition(".")
        if module in ("builtins", "collections"):
            return getattr(importlib.import_module(module), name)
        return self.static(path, "class")

    def is_instance(self, value: Any, kind: StandIn) -> bool:
        if self.mode == "record" and self.depth:
            return isinstance(unwrap(value), kind.answers_real)
        if kind.answers_key == "torch.Size":
            return isinstance(value, values.Size)
        if type(value) is not StandIn:
            return self.mode == "record" and isinstance(value, kind.answers_real)
        own = value.answers_kind[2:] if not is_static(value) else ""
        return kind.answers_key in self.store.classes.get(own, ())

    def is_subclass(self, kind: Any, base: StandIn) -> bool:
        if self.mode == "record" and self.depth:
            return issubclass(unwrap(kind), base.answers_real)
        return type(kind) is StandIn and base.answers_key in self.store.classes.get(kind.answers_key, ())

    def known(self, value: Any) -> str | None:
        """How a question names a stand-in, or a tensor of our own, which is its numbers."""
        if type(value) is StandIn:
            return value.answers_key.removeprefix(self.tape.key)
        if type(value).__module__.startswith("flambeau") and hasattr(value, "detach") and hasattr(value, "tolist"):
            return f"ours {value.dtype} {values.describe(_array(value), lambda v: None)}"
        return None

    # wrapping, while recording

    def wrap(self, real: Any, how: str) -> Any:
        """Plain data as it is, containers of what a call returned with their items wrapped, stand-ins for the rest."""
        if type(real) in (*values.PLAIN, complex, bytes, slice, range) or real is Ellipsis or real is NotImplemented:
            return real
        if isinstance(real, inspect.Signature):
            return inspect.Signature([self._parameter(p) for p in real.parameters.values()])
        if type(real).__module__ == "numpy" or values.is_image(real):
            return real.copy() if hasattr(real, "copy") else real
        if type(real).__name__ == "Size" and isinstance(real, tuple):
            return values.Size(real)
        if type(real) in (tuple, set, frozenset) or (type(real) is list and how != "getattr"):
            return type(real)(self.wrap(v, "call") for v in real)
        if isinstance(real, tuple) and type(real).__base__ is tuple and (fields := values.fields_of(real)):
            return values.named(type(real).__name__, fields, tuple(self.wrap(v, "call") for v in real), real)
        if type(real) in (dict, collections.OrderedDict) and how != "getattr" and not getattr(real, "__dict__", None):
            return type(real)((self.wrap(k, "call"), self.wrap(v, "call")) for k, v in real.items())
        if isinstance(real, type) and real.__module__ in ("builtins", "collections", "numpy"):
            return real
        return self._stand_in(real, how)

    def _parameter(self, p: inspect.Parameter) -> inspect.Parameter:
        default = p.default if p.default is p.empty else self.wrap(p.default, "call")
        return p.replace(default=default, annotation=p.empty)

    def _stand_in(self, real: Any, how: str) -> StandIn:
        path, kind = self._path(real, how)
        if path is not None:
            made = self.static(path, kind, real)
            if kind == "class":
                self._class(real)
            elif kind == "static":
                self.store.classes["of " + path] = [self._class(type(real))]
            return made
        found = self.wrapped.get(id(real))
        if found is None:
            found = StandIn(self, self.tape.name(), "a " + self._class(type(real)), real)
            self.wrapped[id(real)] = found
        return found

    def _class(self, kind: type) -> str:
        """The path of a class, whose bases the table keeps."""
        path = f"{kind.__module__}.{kind.__qualname__}"
        if path not in self.store.classes:
            self.store.classes[path] = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
        return path

    def _path(self, real: Any, how: str) -> tuple[str | None, str]:
        """(path, kind) of what is the same in every test."""
        attribute = how if "." in how else None
        if isinstance(real, types.ModuleType) and type(real) is types.ModuleType:
            return real.__name__, "module"
        if isinstance(real, type):
            self._class(real)
            return f"{real.__module__}.{real.__qualname__}", "class"
        if type(real).__module__ == "torch" and type(real).__name__ in BY_TEXT:
            return str(real), "static"
        if isinstance(real, enum.Enum):
            return f"{type(real).__module__}.{type(real).__qualname__}.{real.name}", "static"
        if isinstance(real, FUNCTIONS) and attribute is None:
            return self._searched(real), "function"
        if attribute is not None:
            return attribute, "function" if isinstance(real, FUNCTIONS) else "static"
        return None, ""

    def _searched(self, real: Any) -> str | None:
        """The path of a function that a call returned, if it is public."""
        home, name = getattr(real, "__module__", None), getattr(real, "__qualname__", None)
        module = sys.modules.get(home or "")
        return f"{home}.{name}" if name and module is not None and getattr(module, name, None) is real else None

    # classes of tests that derive from PyTorch's

    def base_for(self, parent: StandIn) -> type:
        if self.mode == "record" and self.depth:
            return parent.answers_real
        return type.__new__(_Deriving, "Base", (), {"parent": parent})

    def derived(self, name: str, bases: tuple, namespace: dict, options: dict) -> StandIn:
        cell = namespace.pop("__classcell__", None)
        functions = {k: v for k, v in namespace.items() if not k.startswith("__") or isinstance(v, types.FunctionType)}
        parents = [vars(b).get("parent", b) for b in bases]
        question = f"class {name} {values.describe(parents, self.known)} {values.describe(functions, self.known)};"
        if self.mode == "replay":
            made = self._replayed(self.tape.read(question))
        else:
            before, real_bases = self.tape.objects, tuple(unwrap(parents))
            meta = max((type(b) for b in real_bases), key=lambda kind: len(kind.__mro__))
            real = meta(
                name,
                real_bases,
                {k: v if isinstance(v, types.FunctionType) else unwrap(v) for k, v in namespace.items()},
                **options,
            )
            self._class(real)
            made = StandIn(self, self.tape.name(), "a builtins.type", real)
            self.wrapped[id(real)] = made
            self.tape.write(question, self._kept(made, before))
        if (
            cell is not None
        ):  # Python asks that the cell hold what the statement makes; the real class comes in before it is used
            cell.cell_contents = made
            object.__setattr__(made, "answers_cell", cell if self.mode == "record" else None)
        return made


class _Deriving(type):
    """Makes `class Net(torch.nn.Module)` a question, too."""

    def __new__(cls, name: str, bases: tuple, namespace: dict, **options: Any) -> Any:
        parent = next(vars(b)["parent"] for b in bases if "parent" in vars(b))
        return parent.answers_session.derived(name, bases, namespace, options)


def _array(tensor: Any) -> Any:
    """The numbers of a tensor of ours, also of a dtype or layout that NumPy has not."""
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError, NotImplementedError):
        return tensor.detach().tolist()


SESSION = Session()


def live() -> bool:
    """Whether the real PyTorch is what tests compare with, and nobody listens."""
    return SESSION.mode == "live"


def judge(name: str = "torch", reason: str = "", **options: Any) -> Any:
    """A module of PyTorch's or torchvision's: the real one, or its stand-in. Skips the test where there is neither."""
    if SESSION.mode == "replay":
        if not SESSION.store.names:
            pytest.skip("PyTorch is not installed, and its answers are not recorded", allow_module_level=True)
        if name not in SESSION.store.modules:
            pytest.skip(f"{name} is not installed, and its answers are not recorded", allow_module_level=True)
        SESSION.tape.touched = True
        return SESSION.static(name, "module")
    module = pytest.importorskip(
        name, reason=reason or "compares with the real PyTorch: pip install torch==2.13.0", **options
    )
    if SESSION.mode == "live":
        return module
    SESSION.store.modules.add(name)
    return SESSION.static(module.__name__, "module", module)


def told(question: str, compute: Callable[[], Any]) -> Any:
    """One answer for a whole piece of work: what `compute` returns where PyTorch is, or what it returned when it was recorded.

    For work whose single questions cannot be repeated, because they name temporary files or are too many. `compute` asks `judge` for
    what it needs, and returns plain data that is small: a digest of what is large."""
    if SESSION.mode == "replay":
        return SESSION._replayed(SESSION.tape.read(f"told {question};"))
    SESSION.depth += 1  # nothing in it is a question
    try:
        result = compute()
    finally:
        SESSION.depth -= 1
    if SESSION.mode == "record":
        arrays = SESSION.store.arrays(SESSION.tape.key)
        SESSION.tape.write(f"told {question};", values.encode(result, arrays, lambda v: SESSION._kept(v, 0)))
    return result
