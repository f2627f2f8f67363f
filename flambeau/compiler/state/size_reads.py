"""Python code that may get at the sizes of tensors.

Programs for many sizes rest on recordings at a few sizes. Whatever operators make of sizes is seen in these. What a user's own code
makes of a size that it reads need not be (`if x.shape[0] == 7`): there each size is compared with the function before it is trusted."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable

# Names by which code gets at sizes, or at anything by a computed name.
_SIZES = frozenset(
    ("shape", "size", "numel", "nelement", "stride", "len", "nbytes", "storage_offset", "is_contiguous", "untyped_storage",
     "storage", "getattr", "attrgetter", "__len__", "__getattribute__", "vars", "broadcast_shapes", "is_same_size", "__dict__",
     "sym_size", "data_ptr", "names", "locals", "eval", "exec", "length_hint", "__length_hint__", "iter", "next", "map", "filter", "zip",
     "enumerate", "sum", "max", "min", "sorted", "reversed", "list", "tuple", "set", "dict", "any", "all", "reduce", "__iter__")
)  # fmt: skip
# Instructions that take something apart: how often a loop runs over a tensor tells its size.
_APART = ("GET_ITER", "UNPACK_", "LIST_EXTEND", "CALL_FUNCTION_EX", "MATCH_", "SET_UPDATE", "FOR_ITER")


def may_read_sizes(codes: Iterable[types.CodeType]) -> bool:
    """Return whether one of some pieces of code, all that ran, may know the size of a tensor."""
    return any(map(_reads, codes))


@functools.lru_cache(1024)
def _reads(code: types.CodeType) -> bool:
    named = not _SIZES.isdisjoint((*code.co_names, *code.co_freevars, *code.co_cellvars))
    return named or any(one.opname.startswith(_APART) for one in dis.get_instructions(code))


__all__ = ["may_read_sizes"]
