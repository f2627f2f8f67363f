"""Names in code: those that reach more than they name, those that Python calls implicitly, and the globals that code uses."""

from __future__ import annotations

import dis
import functools
import gc
import types

from ...nn.modules.module import Module
from ...optim.optimizer import Optimizer
from .frames import FUNCTIONS_ARE_KNOWN
from .observer import Ran

BY_COMPUTED_NAME = frozenset(("getattr", "setattr", "delattr", "vars", "__dict__", "hasattr", "dir", "__getattribute__", "__reduce_ex__",
                               "__reduce__", "__getstate__", "format_map", "attrgetter", "methodcaller"))  # fmt: skip
# Attributes from which another function can be made of a function.
OF_FUNCTIONS = frozenset(("__closure__", "__code__", "__defaults__", "__kwdefaults__"))
# Attributes that differ in each call: addresses, versions and histories of tensors, states of random generators.
OF_ONE_CALL = frozenset(("data_ptr", "storage_offset", "storage", "untyped_storage", "_version", "grad_fn", "_base", "is_shared", "is_pinned",
                          "_is_view", "is_set_to", "share_memory_", "_use_count", "__array_interface__",
                          "_profiler_enabled", "initial_seed", "seed", "get_rng_state", "get_state"))  # fmt: skip
# Names with "grad" that do not ask whether a tensor has a gradient.
OF_GRAD_MODE = frozenset(
    ("requires_grad", "requires_grad_", "no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled", "gradient_checkpointing")
)  # fmt: skip
# Methods that observe or keep gradients of intermediate values.
HOOKS = frozenset(("register_hook", "register_post_accumulate_grad_hook", "register_prehook", "register_multi_grad_hook", "retain_grad"))  # fmt: skip
# Methods of users' objects that this library calls.
CALLED = frozenset(("forward", "backward", "setup_context", "step", "zero_grad", "__call__"))
# Names by which code reaches the modules inside a module without naming them.
ALL_CHILDREN = frozenset(("children", "modules", "named_children", "named_modules", "_modules", "apply", "get_submodule", "deepcopy",
                           "copy", "compile", "jit", "func", "functional_call", "export", "fx"))  # fmt: skip
# Names by which code reaches more of an optimizer than its parameters.
OF_OPTIMIZERS = frozenset(
    {n for n in dir(Optimizer) if not n.startswith("__")} - {"zero_grad"} | {"param_groups", "state", "defaults", "deepcopy", "copy"}
)  # fmt: skip
# Methods that Python calls implicitly: one that is added later changes an object's behaviour.
IMPLICIT = frozenset(
    n for cls in (int, list, dict, type, property, memoryview, types.GeneratorType) for n in dir(cls) if n.startswith("__")
) | {"__getattr__", "__missing__", "__post_init__", "__match_args__", "__name__", "__annotations__"}  # fmt: skip
OF_CLASSES, OF_MODULES = CALLED | IMPLICIT, CALLED.union(Module().__dict__)  # names of attributes that count unnamed


def formats_attributes(code: types.CodeType) -> bool:
    """Return whether a string constant in code reads an attribute or an entry when it is formatted, as "{0.name}" does."""
    texts = [c for c in code.co_consts if isinstance(c, str)]
    return any(
        "." in part.partition("}")[0] or "[" in part.partition("}")[0] for t in texts for part in t.split("{")[1:]
    )


def slots_of(cls: type) -> list[str]:
    given = cls.__dict__.get("__slots__", ())
    names = [n for n in ((given,) if isinstance(given, str) else given) if n not in ("__dict__", "__weakref__")]
    return [f"_{cls.__name__.lstrip('_')}{n}" if n.startswith("__") and not n.endswith("__") else n for n in names]


@functools.lru_cache(4096)
def globals_of(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The global names that code reads or writes, and the modules that it imports."""
    found = [(i.opname, i.argval) for i in dis.get_instructions(code) if i.opname.endswith(("_GLOBAL", "_NAME"))]
    used = dict.fromkeys(name for opname, name in found if "IMPORT" not in opname)
    return tuple(used), tuple(name for opname, name in found if opname == "IMPORT_NAME")


def functions_of(codes: list[types.CodeType]) -> list[types.FunctionType]:
    """Return all functions with one of these codes. Looking for a few codes is quicker than looking at every object."""
    if not codes:
        return []
    ids = {id(code) for code in codes}
    # `gc` hides objects that a program has frozen, as servers do before they fork.
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    found = gc.get_referrers(*codes) if len(codes) < 5 else gc.get_objects()
    if frozen:
        gc.freeze()
    return [f for f in found if type(f) is types.FunctionType and id(f.__code__) in ids]


def functions_that_ran(ran: list[Ran]) -> list[types.FunctionType]:
    """Return the functions with this code that exist: those that ran, or all where these cannot be told apart."""
    if not FUNCTIONS_ARE_KNOWN:
        return functions_of([one.code for one in ran])
    refs = [ref for one in ran for ref in one.functions.values()]
    return [f for ref in refs if ref is not None and (f := ref()) is not None]
