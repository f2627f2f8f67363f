"""C functions and types whose results depend on nothing but their arguments: known by identity, because names can be reused.

Any other may read a clock, a file, a generator of random numbers or state of its own: a function that calls it is not recorded as a whole."""

from __future__ import annotations

import _abc
import _bisect
import _collections
import _functools
import _heapq
import _json
import _operator
import _sre
import _struct
import _thread
import _warnings
import _weakref
import abc
import builtins
import cmath
import collections
import datetime
import itertools
import math
import operator
import re
import sys
import types
import weakref
from typing import Any

import numpy as np

_MODULES = (builtins, math, cmath, itertools, _bisect, _collections, _functools, _heapq, _json, _operator, _sre, _struct)  # fmt: skip
_IMPURE = frozenset((print, input, open, eval, exec, globals, locals, breakpoint, compile, __import__))
# Another number for each object: what code of users does with it cannot be known.
_OF_OBJECTS = frozenset((id, _weakref.getweakrefcount))
ASK_FOR_EXCEPTIONS = frozenset((sys.exc_info, getattr(sys, "exception", sys.exc_info)))
_MORE = (sys.intern, *ASK_FOR_EXCEPTIONS, sys.getdefaultencoding, sys.is_finalizing, _thread.get_ident, _thread.allocate_lock,
         _weakref.getweakrefcount, _warnings.warn, _warnings.warn_explicit, _abc._abc_instancecheck, _abc._abc_subclasscheck,
         _abc.get_cache_token)  # fmt: skip
LOOK_AT_FRAMES = frozenset((sys._getframe, getattr(sys, "_getframemodulename", None)))
_READS_FILES = frozenset(("fromfile", "seterrobj", "_load_from_filelike"))  # of NumPy's functions in C
# Methods whose results depend on more than their arguments.
_IMPURE_METHODS = frozenset(("__subclasses__", "now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp", "astimezone", "timestamp",
                             "tofile", "dump"))  # fmt: skip
_SAMPLES: tuple[Any, ...] = ((), [], {}, {}.values(), {}.items(), set(), "", b"", range(1))
_ITERATORS = tuple({type(iter(v)) for v in _SAMPLES})
CONTAINERS = (dict, list, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict, collections.deque)
NUMBERS = (np.generic, np.dtype, np.ufunc, type(np.sum))  # of NumPy: they never change, either
# Values that never change: their holders are guarded, not the values.
IMMUTABLE = (range, slice, re.Pattern, datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone,
             types.CodeType, types.GenericAlias, types.UnionType, operator.itemgetter, type(sys.flags),
             type(sys.float_info), type(sys.version_info), _collections._tuplegetter, type(abc.ABC.__dict__["_abc_impl"]))  # fmt: skip
_TYPES = frozenset((
    *CONTAINERS, *IMMUTABLE, *NUMBERS, *_ITERATORS, *(t for t in vars(itertools).values() if isinstance(t, type)), re.Match, np.ndarray,
    *(t for t in vars(types).values() if isinstance(t, type)), weakref.ref, type({}.keys()), type({}.values()), type({}.items()), operator.attrgetter, operator.methodcaller,
    _functools.partial, _functools._lru_cache_wrapper, _struct.Struct,
    *(t for t in vars(builtins).values() if isinstance(t, type)),
))  # fmt: skip
_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.ClassMethodDescriptorType, types.WrapperDescriptorType)  # fmt: skip
_FUNCTIONS: dict[int, Any] = {
    id(f): f
    for module in (*_MODULES, *(m for n, m in sys.modules.items() if n.endswith("._multiarray_umath")))
    for f in vars(module).values()
    if isinstance(f, types.BuiltinFunctionType) and getattr(f, "__self__", None) in (module, None) and f not in _IMPURE
    if f.__name__ not in _READS_FILES
}
_FUNCTIONS |= {id(f): f for f in _MORE}


def objection(f: Any, by_user: bool = True) -> str:
    """Return why a C function or method may return something else in the next call, or "". `by_user` says whether user code calls it, not
    Python's library."""
    owner = getattr(f, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        if id(f) in _FUNCTIONS and not (by_user and f in _OF_OBJECTS):
            return ""
        holder = getattr(f, "__objclass__", None)
        if holder is not None:
            return _method_objection(f, holder)
        return f"{_name(f)} is called, which may give something else in each call"
    if isinstance(owner, type):
        places: tuple[type, ...] = (*owner.__mro__, *type(owner).__mro__)  # type: ignore[misc]
    else:
        places = type(owner).__mro__
    holder = next((c for c in places if isinstance(c.__dict__.get(f.__name__), _IN_C)), None)
    return _method_objection(f, holder)


def _method_objection(f: Any, holder: type | None) -> str:
    if holder is not None and is_known(holder) and f.__name__ not in _IMPURE_METHODS:
        return ""
    where = type(getattr(f, "__self__", None)).__name__ if holder is None else holder.__qualname__
    return f"{f.__name__} of {where} is called, which may give something else in each call"


def is_known(cls: type) -> bool:
    """Return whether a class in C is known to have no hidden state."""
    return cls in _TYPES or issubclass(cls, (np.generic, BaseException))


def _name(f: Any) -> str:
    module = getattr(f, "__module__", None) or ""
    return f"{module}.{f.__qualname__}()" if module not in ("", "builtins") else f"{f.__qualname__}()"
