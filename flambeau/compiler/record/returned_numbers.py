"""Numbers that a function reads from tensors only to return them: `return loss.item()`.

The use that Python makes of a number cannot be recorded, so reading one is a reason not to record a function. But if only the making of a
tuple, list or dict and the `return` follow, it is not used: it can be read anew whenever the recording runs."""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType
from typing import Any

from ...core.overrides import FACE_CODES

_HARMLESS = frozenset(
    ("CACHE", "NOP", "PRECALL", "CALL", "CALL_METHOD", "PUSH_NULL", "LOAD_FAST", "LOAD_CONST", "STORE_FAST", "LOAD_FAST_LOAD_FAST", "BUILD_TUPLE",
     "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "RETURN_VALUE", "EXTENDED_ARG", "LOAD_FAST_BORROW", "LOAD_SMALL_INT")
)  # fmt: skip
_CALLING = frozenset(("CALL", "CALL_METHOD"))  # the second until Python 3.10
_READING = frozenset(("LOAD_METHOD", "LOAD_ATTR"))
_METHODS = frozenset(("item", "detach"))


def only_returned(codes: frozenset[CodeType]) -> bool:
    """Return whether the `item()` being handled was called straight from one of these codes, which then does nothing but return."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code not in FACE_CODES:
        frame = frame.f_back
    caller = None if frame is None else frame.f_back  # an operator that wants a number, and `float(x)`, call it, too
    return caller is not None and caller.f_code in codes and _ends(caller.f_code, caller.f_lasti)


@functools.lru_cache(1024)
def _ends(code: CodeType, at: int) -> bool:
    """Return whether the instructions after an offset only build containers, read more numbers, and return."""
    for instruction in dis.get_instructions(code):
        if instruction.offset <= at:
            continue
        if instruction.is_jump_target:
            return False
        if instruction.opname == "RETURN_VALUE":
            return True
        if instruction.opname in _READING:
            if instruction.argval not in _METHODS:
                return False
        elif instruction.opname not in _HARMLESS or (instruction.opname in _CALLING and instruction.arg):
            return False
    return False
