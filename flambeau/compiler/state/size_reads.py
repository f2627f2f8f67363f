"""Python code that may do something else for another size of a tensor.

Programs for many sizes rest on recordings at a few sizes. Whatever operators make of sizes is seen in these. What a user's own code
makes of a size that it reads need not be: `if x.shape[0] == 7`. So such code is looked at, instruction by instruction: sizes may go into
sums, products and arguments, but nothing may be decided by them."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable
from typing import NamedTuple

# Names by which code gets at sizes, or at anything by a computed name.
_SIZES = frozenset(
    ("shape", "size", "numel", "nelement", "stride", "len", "nbytes", "storage_offset", "is_contiguous", "untyped_storage",
     "storage", "getattr", "attrgetter", "__len__", "__getattribute__", "vars", "broadcast_shapes", "is_same_size", "__dict__",
     "sym_size", "data_ptr", "names", "locals", "eval", "exec", "length_hint", "__length_hint__")
)  # fmt: skip
# Functions and methods that may give something else for a single size; others, such as min(), show it at sizes around.
_TELLING = frozenset(
    ("divmod", "pow", "bool", "hash", "id", "set", "frozenset", "dict", "str", "repr", "format", "bin", "hex", "oct", "chr", "operator",
     "functools", "bisect", "numpy", "np", "random", "zlib", "hashlib", "struct", "range", "any", "all", "getattr", "vars", "eval", "exec", "locals",
     "globals", "gcd", "lcm", "fmod", "remainder", "isqrt", "comb", "perm", "factorial", "modf", "frexp", "isclose", "reduce", "mod",
     "eq", "ne", "itemgetter", "methodcaller", "bisect_left", "bisect_right", "accumulate", "sha1", "sha256", "md5", "crc32")
)  # fmt: skip
_TELLING_METHODS = frozenset(
    ("get", "index", "count", "setdefault", "pop", "bit_length", "bit_count", "to_bytes", "__getitem__", "__mod__", "__rmod__", "__eq__",
     "__ne__", "__and__", "__or__", "__xor__", "__divmod__", "__pow__", "__bool__", "__hash__", "__contains__", "is_integer", "as_integer_ratio",
     "hex", "format", "join", "zfill")
)  # fmt: skip
_SMOOTH = frozenset(("sqrt", "log", "log2", "exp", "floor", "ceil", "prod", "pi", "inf"))  # of math
_ORDER = ("<", "<=", ">", ">=")
_EXACT = ("%", "&", "|", "^", "<<", ">>", "**")
_OLD = {
    "BINARY_MODULO": "%", "BINARY_AND": "&", "BINARY_OR": "|", "BINARY_XOR": "^", "BINARY_LSHIFT": "<<", "BINARY_RSHIFT": ">>",
    "BINARY_POWER": "**", "BINARY_MULTIPLY": "*", "INPLACE_MULTIPLY": "*", "INPLACE_MODULO": "%", "INPLACE_AND": "&", "INPLACE_OR": "|", "INPLACE_XOR": "^",
    "INPLACE_LSHIFT": "<<", "INPLACE_RSHIFT": ">>", "INPLACE_POWER": "**",
}  # fmt: skip
_DECIDING = frozenset(
    ("CONTAINS_OP", "UNARY_NOT", "UNARY_INVERT", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "MATCH_SEQUENCE",
     "MATCH_MAPPING", "MATCH_KEYS", "MATCH_CLASS", "BUILD_SET", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP",
     "MAP_ADD", "SET_ADD", "SET_UPDATE", "DICT_UPDATE", "IMPORT_NAME", "STORE_GLOBAL")
)  # fmt: skip
# Beginnings of the names of instructions that only move values about, call, add, and so on: an instruction of another name, such as a
# new one of a later Python, might decide anything.
_KNOWN = (
    "LOAD_", "STORE_", "DELETE_", "POP_", "PUSH_", "CALL", "KW_NAMES", "RETURN_", "JUMP_", "FOR_ITER", "GET_", "END_", "BUILD_", "LIST_",
    "UNPACK_", "BINARY_", "INPLACE_", "UNARY_", "COMPARE_OP", "IS_OP", "COPY", "SWAP", "DUP_", "ROT_", "SETUP_", "BEFORE_", "WITH_", "RAISE_",
    "RERAISE", "CHECK_", "MAKE_", "SET_FUNCTION_ATTRIBUTE", "YIELD_", "GEN_", "SEND", "INTERPRETER_EXIT", "CLEANUP_", "EXIT_INIT_CHECK",
)  # fmt: skip
_PLAIN_INDEX = ("LOAD_CONST", "LOAD_SMALL_INT", "BUILD_SLICE")
_SKIPPED = frozenset(("CACHE", "EXTENDED_ARG", "TO_BOOL", "PRECALL", "RESUME", "NOP", "COPY_FREE_VARS"))


def may_depend_on_sizes(codes: Iterable[types.CodeType]) -> str:
    """Return why code that ran may decide something by sizes, or an empty string. Code that reads no size cannot."""
    held = list(codes)
    if not any(_reads(code) for code in held):
        return ""
    found = [_decisions(code) for code in held]
    why = next((one.why for one in found if one.why), "")
    # The sign of a sum of sizes changes once at most, so that sizes at both ends show it; that of a product may change between.
    if not why and any(one.orders for one in found) and any(one.multiplies for one in found):
        why = next(f"{one.name} compares sizes, and there are products" for one in found if one.orders)
    return why


def _reads(code: types.CodeType) -> bool:
    return not _SIZES.isdisjoint(code.co_names)


class _Decisions(NamedTuple):
    """Decisions that code may make by numbers: why it may do so in ways that are not seen at other sizes; whether it compares, or multiplies."""

    name: str
    why: str = ""
    orders: bool = False
    multiplies: bool = False


@functools.lru_cache(1024)
def _decisions(code: types.CodeType) -> _Decisions:
    orders = multiplies = in_assert = False
    last: list[dis.Instruction] = []  # without those that do nothing
    for one in dis.get_instructions(code):
        if one.opname in _SKIPPED:
            continue
        if one.opname == "LOAD_ASSERTION_ERROR":  # what a failed assertion says decides nothing
            in_assert = True
        if not in_assert:
            sign = _sign(one)
            multiplies = multiplies or sign == "*"
            if _is_bad(one, sign, last):
                what = one.argval if one.opname == "COMPARE_OP" else one.argrepr or one.opname
                return _Decisions(code.co_name, f"{code.co_name} reads sizes, and uses {what}")
            orders = orders or (one.opname == "COMPARE_OP" and one.argval in _ORDER)
        in_assert = in_assert and one.opname != "RAISE_VARARGS"
        last.append(one)
    return _Decisions(code.co_name, "", orders and _compares_besides(last), multiplies)


def _sign(one: dis.Instruction) -> str:
    return one.argrepr.rstrip("=") if one.opname == "BINARY_OP" else _OLD.get(one.opname, "")


def _is_bad(one: dis.Instruction, sign: str, last: list[dis.Instruction]) -> bool:
    """Return whether an instruction may decide by a number, or make something of one that other sizes do not show."""
    name, before = one.opname, last[-1] if last else None
    if name == "COMPARE_OP":
        constant = before is not None and before.opname == "LOAD_CONST"
        part = constant and last[-2:-1] and last[-2].opname == "BINARY_SUBSCR" and _has_slice(last[:-2])
        return one.argval not in _ORDER and not part
    if name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
        return one.argval in _TELLING
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        of_math = before is not None and before.argval == "math"
        return one.argval in _TELLING_METHODS or (of_math and one.argval not in _SMOOTH)
    if "JUMP" in name and "_IF_" in name and "NONE" not in name:  # flags of objects are guarded, and what is None
        return before is None or before.opname not in ("LOAD_ATTR", "IS_OP", "COMPARE_OP")
    if name in ("BINARY_SUBSCR", "STORE_SUBSCR") or sign == "[]":
        return before is None or not (before.opname in _PLAIN_INDEX or _has_slice(last))
    if not name.startswith(_KNOWN) or name in _DECIDING:
        return True
    return sign in _EXACT or (name == "BUILD_MAP" and bool(one.arg))


def _has_slice(last: list[dis.Instruction]) -> bool:
    """Return whether the last instruction makes a tuple of plain values and slices: what is indexed by that is a tensor, no dict."""
    if not last or last[-1].opname != "BUILD_TUPLE":
        return False
    i, found = len(last) - 2, False
    for _ in range(last[-1].arg or 0):
        name = last[i].opname if i >= 0 else ""
        found = found or name == "BUILD_SLICE"
        if not name.startswith("LOAD_") and name not in ("BUILD_SLICE", "BUILD_LIST"):
            return False
        i -= 1 + ((last[i].arg or 0) if name.startswith("BUILD_") else 0)
    return found


def _compares_besides(code: list[dis.Instruction]) -> bool:
    """Return whether numbers are compared elsewhere than in an assertion."""
    places = [i for i, one in enumerate(code) if one.opname == "COMPARE_OP" and one.argval in _ORDER]
    return any([o.opname for o in code[i + 2 : i + 3]] != ["LOAD_ASSERTION_ERROR"] for i in places)


__all__ = ["may_depend_on_sizes"]
