"""Simplification of formulas without changing any value, nan and infinities included, once the dtypes of operands and result are known."""

from __future__ import annotations

from .node import Expr, binary, const, is_const, node, rebuild, walk

# On real numbers these return their operand.
_REAL_IDENTITIES = frozenset({"conj", "real"})


_known: dict[tuple[int, bool], Expr] = {}  # by the identity of expressions, which are interned for good


def simplify(root: Expr, real: bool) -> Expr:
    """Apply the rules bottom-up; `real` says that no complex number takes part."""
    key = (id(root), real)
    found = _known.get(key)
    if found is None:
        found = _known[key] = _bottom_up(root, real)
    return found


def _bottom_up(root: Expr, real: bool) -> Expr:
    done: dict[int, Expr] = {}
    for x in walk((root,)):
        new = rebuild(x, [done[id(o)] for o in x.operands])
        done[id(x)] = _simplify_node(new, real)
    return done[id(root)]


def _simplify_node(x: Expr, real: bool) -> Expr:
    op = x.op
    if real and op in _REAL_IDENTITIES:
        return x.args[0]
    if op == "neg" and x.args[0].op == "neg":
        return x.args[0].args[0]
    if op == "neg" and x.args[0].op == "const":
        return const(-x.args[0].args[0])
    if op == "div" and x.args[0].op == x.args[1].op == "const" and x.args[1].args[0] != 0:
        return const(x.args[0].args[0] / x.args[1].args[0])
    if op == "conj" and x.args[0].op == "conj":
        return x.args[0].args[0]
    if op == "where" and x.args[1] is x.args[2]:
        return x.args[1]
    if op in ("mul", "div"):
        return _product(op, *x.args)
    if op == "sub" and x.args[1].op == "neg":
        return binary("add", x.args[0], x.args[1].args[0])
    if op == "add" and x.args[1].op == "neg":
        return binary("sub", x.args[0], x.args[1].args[0])
    if op == "pow" and is_const(x.args[1], 1):
        return x.args[0]
    return x


def _product(op: str, a: Expr, b: Expr) -> Expr:
    """Simplify a product or quotient: signs move outwards and may cancel; factors of 1 are dropped."""
    if a.op == "neg" and b.op == "neg":
        return binary(op, a.args[0], b.args[0])
    if is_const(b, 1) and not isinstance(b.args[0], complex):
        return a
    if op == "mul" and is_const(a, 1) and not isinstance(a.args[0], complex):
        return b
    if op == "mul" and is_const(b, -1):
        return node("neg", a)
    if op == "mul" and is_const(a, -1):
        return node("neg", b)
    if a.op == "neg":
        return node("neg", binary(op, a.args[0], b))
    if b.op == "neg":
        return node("neg", binary(op, a, b.args[0]))
    return binary(op, a, b)
