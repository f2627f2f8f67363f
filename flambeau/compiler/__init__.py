"""`flambeau.compile` and `torch.compiler`'s switches.

A compiled function is recorded while it runs, and from then on its native calls run as one. Code that cannot be recorded runs eagerly, and
`explain` says why. A model is wrapped in an `OptimizedModule` that keeps it as `_orig_mod`, as in PyTorch, so that programs and checkpoints
written for `torch.compile` work.

    function    the compiled function: which recording fits a call, and when to record again
    ranges      programs for many sizes
    state/      the Python state that a function reads: observed while it runs, guarded afterwards
    record/     the function runs eagerly and its native calls are recorded as steps over buffers; its results and side effects
    passes/     rewrite the steps: share, fuse, drop, choose layouts
    runtime/    buffers get places, calls their arguments, and one native driver runs them; the first run is compared with eager
    split/      functions that cannot be recorded whole, in parts
    gpu/        the same on a GPU: a program of operator calls, rewritten, captured into one CUDA graph
    explanation, drawing    the outcome of compiling a function, as text and as SVG

docs/internals/compile.md follows one example through all of it.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import naming as _naming
from ..core import pytree
from ..core.absent import raising
from ..core.compile_options import BACKENDS, check_compile_options, generation
from ..core.tensor import Tensor
from ..nn import Module
from ..ops.creation.construct import from_numpy

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance", "show",
]  # fmt: skip


class OptimizedModule(Module):
    """Compiled model: called like the original, which is its attribute `_orig_mod`."""

    def __init__(self, mod: Module, options: dict[str, Any] | None = None):
        super().__init__()
        self._orig_mod = mod
        self.training = mod.training
        self.__dict__["_compiled"] = None
        self.__dict__["_options"] = options or {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        compiled = self.__dict__["_compiled"]
        if compiled is None:
            compiled = self.__dict__["_compiled"] = _compiled_function(self._orig_mod, self.__dict__["_options"])
        return compiled(*args, **kwargs)

    def explain(self) -> str:
        """Describe how the model was compiled, as text; see `flambeau.compiler.show`."""
        compiled = self.__dict__["_compiled"]
        return "not called yet" if compiled is None else compiled.explain()

    def picture(self) -> str:
        """Return a drawing (SVG) of the model's recordings; see `flambeau.compiler.show`."""
        compiled = self.__dict__["_compiled"]
        return _room("drawing").draw("not called yet", []) if compiled is None else compiled.picture()

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "_compiled": None}

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = (
            name in ("_orig_mod", "training")
            or name in self.__dict__
            or "_orig_mod" not in self.__dict__.get("_modules", {})
        )
        if own:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)


def _compiled_function(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return a wrapper of `function` that compiles it when it is called; its `explain()` describes the outcome."""
    behind: list[Any] = [None]

    def opened() -> Any:
        if behind[0] is None:
            made = _room("function").CompiledFunction(function, options)
            made.note(first.kinds, first.observer)
            face._compiled = behind[0] = made
        return behind[0]

    @functools.wraps(function, assigned=[n for n in functools.WRAPPER_ASSIGNMENTS if hasattr(function, n)], updated=())
    def compiled(*args: Any, **kwargs: Any) -> Any:
        known = behind[0]
        if known is None:
            if not first.called and f"{__name__}.function" not in sys.modules:
                return first(*args, **kwargs)
            known = opened()
        return known(*args, **kwargs)

    face: Any = compiled
    first = face._compiled = _room("first_call").FirstCall(function, opened, options.get("dynamic") is False)
    face._torchdynamo_orig_callable = function
    face.explain = lambda: _room("explanation").explain(opened())  # rarely used: nothing is imported for it before
    face.picture = lambda: _room("explanation").svg(opened())
    return face


def _room(name: str) -> Any:
    return _naming.above(f"compiler.{name}")


_AS_IT_IS = ("eager", "aot_eager")  # backends that are for finding out whose mistake a mistake is


def compile(model: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a model or function: from the third call with arguments of one kind on, each call is a single native call.

    A function may be a whole training step: forward, backward, clipping and the optimizer's step become one. Keywords are those of
    PyTorch: fullgraph (raise an error where something cannot be recorded), dynamic, backend, mode, options, disable. Without `model`
    it is a decorator.

    >>> model = flambeau.compile(flambeau.nn.Linear(2, 2))
    >>> list(model.state_dict())
    ['_orig_mod.weight', '_orig_mod.bias']
    """
    check_compile_options(**options)
    if model is None:
        return functools.partial(compile, **options)
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if options.get("disable"):
        return model
    if options.get("backend", _default_backend[0]) in _AS_IT_IS:
        options = {**options, "run_as_it_is": True}
    if isinstance(model, Module):
        return OptimizedModule(model, options)
    return _compiled_function(model, options)


def show(compiled: Any, picture: str | os.PathLike[str] | None = None) -> str:
    """Describe the function or model `compiled` as text: its graphs before and after each pass, kernels
    and their times, memory, guards, and the reasons for recording again, splitting, or running
    eagerly. `picture` is the path of an SVG file to write with the graphs and the plan of the memory.

    >>> double = flambeau.compile(lambda x: x * 2)
    >>> flambeau.compiler.show(double).splitlines()[-1]
    '  not recorded yet: that needs a second call with arguments of the same kind'
    """
    if picture is not None:
        with open(picture, "w", encoding="utf-8") as file:
            file.write(compiled.picture())
    return compiled.explain()


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Mark a function as not to be compiled: functions that call it run eagerly as well."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    original = getattr(fn, "_torchdynamo_orig_callable", None)
    # Unwrap a compiled function, but no user function that wraps one.
    if original is not None and getattr(fn, "__wrapped__", None) is original:
        fn = original
    if isinstance(fn, types.FunctionType):
        fn._torchdynamo_disable = True  # type: ignore[attr-defined]
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Mark a function as one node of a compiled graph. It is returned unchanged: its operators are recorded like all others."""
    return fn


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function whose result never changes. It is returned unchanged."""
    return fn


def is_compiling() -> bool:
    """Return whether a compiled function is being recorded now."""
    room = sys.modules.get(f"{__name__}.function")
    return room is not None and room.recording.on


def is_dynamo_compiling() -> bool:
    """Return whether a compiled function is being recorded now."""
    return is_compiling()


def is_exporting() -> bool:
    """Return whether a program is being exported."""
    return False


def reset() -> None:
    """Drop all recordings: functions are recorded again when they are called."""
    generation[0] += 1


def cudagraph_mark_step_begin() -> None:
    """Mark the beginning of a step for CUDA graphs; has no effect here."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Return the names that `compile(backend=...)` accepts; those for debugging only if asked for."""
    return [name for name, tag in BACKENDS.items() if tag not in (exclude_tags or ())]


_STANCES = (
    "default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
)  # fmt: skip


class set_stance:  # noqa: N801 - PyTorch's name
    """Set how compiled functions run, from now on or inside a `with` block: "force_eager" runs them uncompiled."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None):
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}'")
        room = _room("function")
        self.before, room.stance[0] = room.stance[0], stance

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        _room("function").stance[0] = self.before


_default_backend = ["inductor"]


def get_default_backend() -> str:
    """Return the name of the backend that `compile` uses by default."""
    return _default_backend[0]


def set_default_backend(backend: str | None) -> None:
    """Set the backend that `compile` uses by default; None restores "inductor"."""
    check_compile_options(backend=backend)
    _default_backend[0] = backend or "inductor"


def nested_compile_region(fn: Callable | None = None, **options: Any) -> Any:
    """Mark a function that a compiled one calls often. It is returned unchanged: the passes find repeated parts of a program themselves."""
    return functools.partial(nested_compile_region, **options) if fn is None else fn


def substitute_in_graph(
    original_fn: Callable, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable:
    """Return a decorator for a function that a compiler may read in place of `original_fn`. It has no effect: recordings run the original."""
    return lambda replacement: replacement


def wrap_numpy(fn: Callable) -> Callable:
    """Turn a function of NumPy arrays into one of tensors: arguments become arrays, arrays in the results become tensors."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(lambda x: x.numpy() if isinstance(x, Tensor) else x, (args, kwargs))
        return pytree.tree_map(lambda x: from_numpy(x) if isinstance(x, np.ndarray) else x, fn(*args, **kwargs))

    return wrapped


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Return False, the only setting: ranks do not agree on guards, each records independently. True is refused."""
    if enabled:
        raise NotImplementedError("set_enable_guard_collectives(True): ranks do not ask each other about their guards")
    return False


(
    keep_portable_guards_unsafe, keep_tensor_guards_unsafe, skip_all_guards_unsafe, skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe, skip_guard_on_inbuilt_nn_modules_unsafe,
) = raising(
    "keep_portable_guards_unsafe keep_tensor_guards_unsafe skip_all_guards_unsafe skip_guard_on_all_nn_modules_unsafe"
    " skip_guard_on_globals_unsafe skip_guard_on_inbuilt_nn_modules_unsafe",
    NotImplementedError,
    "compiler.{}(): a compiled function always checks what it depends on",
).values()  # fmt: skip
load_cache_artifacts, load_compiled_function, save_cache_artifacts = raising(
    "load_cache_artifacts load_compiled_function save_cache_artifacts",
    NotImplementedError,
    "compiler.{}(): kernels are kept on disk by themselves (FLAMBEAU_CACHE_DIR); `export` and `cpp` write programs to files",
).values()


if TYPE_CHECKING:
    from ..compat.private._dynamo import config as config
else:

    def __getattr__(name: str) -> Any:
        if name == "config":
            return _naming.submodule(__name__, name)
        raise _naming.no_attribute(__name__, name)


_disable_dynamo = disable  # PyTorch's name for itself
