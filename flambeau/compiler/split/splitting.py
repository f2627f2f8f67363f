"""A function in parts: the statements that can be recorded become compiled parts, and Python runs between them.

A function that reads a value, prints, or changes Python's objects cannot be one recording. So it runs once with a mark before every
statement, to find out what each of them does; then each statement that cannot be recorded stays in Python, and those before, between and
after them become functions of the variables they read, which return the variables they set. These functions are compiled like any other, and
are split further if necessary. Loops, conditions and `with` blocks stay in place; their bodies are split. A function or module of the user
that a remaining statement calls is compiled separately."""

from __future__ import annotations

import ast
import builtins
import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

from ...autograd.grad_mode import no_grad
from ...nn.modules.module import Module
from ..state import source
from ..state.origins import is_users
from ..state.source import Source, located
from .variables import BLOCKS, flow, loads, own_nodes, shared, stores

_DECORATED = no_grad()(lambda: None).__code__
_MOST_INNER = 64  # functions that one statement's calls may be of
_READERS = frozenset(("item", "tolist", "numpy"))  # methods whose receiver can be computed before
_TAKERS = frozenset(("float", "int", "bool", "print", "str", "repr", "format"))  # functions whose arguments can be
_LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Global, ast.Nonlocal)  # fmt: skip


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements of a function, also those inside blocks."""
    for s in body:
        yield s
        if isinstance(s, BLOCKS):
            yield from statements(s.body)
            yield from statements(getattr(s, "orelse", []))


def refusal(given: Source) -> str:
    """Return why a function cannot be split, or ""."""
    private = [
        n for n in ast.walk(given.tree)
        if getattr(n, "attr", getattr(n, "id", "")).startswith("__") and not getattr(n, "attr", getattr(n, "id", "")).endswith("__")
    ]  # fmt: skip
    if private:
        return "it uses names that are private to a class"
    hidden = shared(given.tree, given.parameters)
    return f"a function inside it sees {', '.join(sorted(hidden))}, which it sets more than once" if hidden else ""


def marked(given: Source, mark: Callable[[int], None]) -> tuple[types.FunctionType, list[ast.stmt]]:
    """Return the function with a call of `mark` before every statement, and the statements by their numbers."""
    found = list(statements(given.tree.body))
    numbers = {id(s): k for k, s in enumerate(found)}

    def call(s: ast.stmt, like: ast.stmt) -> ast.stmt:
        name = ast.Name(id="_flambeau_mark", ctx=ast.Load())
        return located(ast.Expr(ast.Call(name, [ast.Constant(numbers[id(s)])], [])), like)

    def block(body: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for s in body:
            result.append(call(s, s))
            if isinstance(s, BLOCKS):
                inner = copy.copy(s)
                inner.body = block(s.body)
                if isinstance(s, (ast.For, ast.While)):
                    inner.body.append(call(s, s.body[-1]))  # the next round begins in the statement itself
                if not isinstance(inner, ast.With):
                    inner.orelse = block(inner.orelse)
                s = inner
            result.append(s)
        return result

    tree = copy.copy(given.tree)
    tree.body = block(tree.body)
    return given.build(tree, {"_flambeau_mark": mark}), found


def header(s: ast.stmt) -> ast.stmt:
    """Return a statement without the blocks that it contains, for finding out what can be reached from it."""
    if not isinstance(s, BLOCKS):
        return s
    inner = copy.copy(s)
    inner.body = [located(ast.Pass(), s)]
    if hasattr(inner, "orelse"):
        inner.orelse = []
    return inner


def alone(given: Source, s: ast.stmt) -> types.FunctionType | None:
    """Return a statement as a function, or None if it cannot run on its own."""
    if isinstance(s, (ast.Break, ast.Continue, ast.Global, ast.Nonlocal)):
        return None
    head = header(s)
    names = sorted((loads(head) | stores(head)) & given.locals)
    return given.part(given.tree.name, names, [head], {}).function


class Split:
    """A function that calls compiled parts. `bad` maps the statements that stay to the reasons; `compiled` makes a compiled function of a
    part (its source, its name) or of a function or module that a remaining statement calls (no source, no name). `varying` are variables that
    no part should be given, because their numbers differ in each call."""

    def __init__(
        self,
        given: Source,
        bad: dict[ast.stmt, str],
        compiled: Callable[[Any, Source | None, str], Any],
        varying: set[str],
    ):
        self.source, self.bad, self._compiled, self.varying = given, bad, compiled, varying
        self.parts: list[Any] = []
        self.inner: dict[Any, Any] = {}
        self.calls_others = False  # whether a statement that stays may call something that can be compiled
        self.extras: dict[str, Any] = {"_flambeau_inner": self._inner_call}
        self._count = 0
        definite = given.parameters & given.locals
        tree = copy.copy(given.tree)
        tree.body = self._block(given.tree.body, set(definite), False)
        self.function: Callable = given.build(tree, self.extras)

    # -- statements -------------------------------------------------------------------------------------------------
    def _block(self, body: list[ast.stmt], definite: set[str], looped: bool) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        run: list[ast.stmt] = []

        def flush() -> None:
            nonlocal definite
            if run:
                result.extend(self._run(list(run), definite, looped))
                definite = flow(run, definite)[1]
                run.clear()

        for s in body:
            if isinstance(s, ast.Return) and s not in self.bad:
                if s.value is None or isinstance(s.value, (ast.Name, ast.Constant)):
                    flush()
                else:
                    name = self._name()
                    run.append(located(ast.Assign([ast.Name(name, ast.Store())], s.value), s))
                    flush()
                    s = located(ast.Return(ast.Name(name, ast.Load())), s)
                result.append(s)
            elif not self._must_stay(s):
                run.append(s)
            else:
                before, s = self._hoist_reads(s)
                run.extend(before)
                flush()
                result.append(self._split_inside(s, definite, looped))
                definite = flow([s], definite)[1]
        flush()
        return result

    def _must_stay(self, s: ast.stmt) -> bool:
        """Return whether a statement, or one inside it, cannot be in a part."""
        if s in self.bad or any(isinstance(n, _LEAVING) and not self._inside_loop(s, n) for n in own_nodes(s)):
            return True
        return isinstance(s, BLOCKS) and any(inner in self.bad for inner in statements([s]))

    @staticmethod
    def _inside_loop(s: ast.stmt, leaving: ast.AST) -> bool:
        """Return whether a `break` or `continue` leaves a loop that is inside the statement."""
        if not isinstance(leaving, (ast.Break, ast.Continue)):
            return False
        return any(
            leaving in own_nodes(n) for n in own_nodes(s) if isinstance(n, (ast.For, ast.While)) and n is not leaving
        )

    def _split_inside(self, s: ast.stmt, definite: set[str], looped: bool) -> ast.stmt:
        """Return a statement that stays, with the statements inside it split."""
        if not isinstance(s, BLOCKS):
            return self._with_inner_calls(s)
        inner = copy.copy(s)
        now = set(definite)
        if isinstance(inner, ast.For):
            now |= stores(inner.target)
            inner.iter = self._with_inner_calls(inner.iter)
        elif isinstance(inner, ast.With):
            for item in inner.items:
                now |= stores(item.optional_vars) if item.optional_vars is not None else set()
        else:
            inner.test = self._with_inner_calls(inner.test)
        looped = looped or isinstance(s, (ast.For, ast.While))
        inner.body = self._block(s.body, now, looped)
        if not isinstance(inner, ast.With) and inner.orelse:
            inner.orelse = self._block(inner.orelse, set(definite), looped)
        return inner

    def _run(self, run: list[ast.stmt], definite: set[str], looped: bool) -> list[ast.stmt]:
        """Return statements that can be recorded together as a call of a part."""
        names = self.source.locals | {n for n in definite if n.startswith("_flambeau_value")}
        outer = {n for s in self.source.outer for n in s.names}
        exposed, after = flow(run, set())
        inputs = exposed & (names - outer)
        inside = {id(n) for s in run for n in ast.walk(s)}
        elsewhere = {
            n.id for n in ast.walk(self.source.tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store) and id(n) not in inside
        }  # fmt: skip
        set_here = set().union(*map(stores, run)) - outer
        outputs = {n for n in set_here if n in elsewhere or n in exposed or n.startswith("_flambeau_value")}
        inputs |= outputs - after  # a variable that is not set in every case keeps its value
        works = any(isinstance(n, (ast.Call, ast.BinOp, ast.AugAssign)) for s in run for n in ast.walk(s))
        if not works or not inputs <= definite:
            return run
        gives, takes = sorted(outputs), sorted(inputs)
        back = ast.Tuple([ast.Name(n, ast.Load()) for n in gives], ast.Load())
        body = [*run, located(ast.Return(back), run[-1])] if gives else run
        first, last = run[0].lineno, max(getattr(s, "end_lineno", s.lineno) or s.lineno for s in run)
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        made = self.source.part(self.source.tree.name, takes, body, {})
        part = self._compiled(made.function, made, f"{self.source.function.__qualname__}, {lines}")
        self.parts.append(part)
        name = f"_flambeau_part{len(self.parts)}"
        self.extras[name] = part
        call: ast.expr = ast.Call(ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in takes], [])
        if not gives:
            return [located(ast.Expr(call), run[0])]
        target = ast.Tuple([ast.Name(n, ast.Store()) for n in gives], ast.Store())
        return [located(ast.Assign([target], call), run[0])]

    # -- expressions ------------------------------------------------------------------------------------------------
    def _name(self) -> str:
        self._count += 1
        return f"_flambeau_value{self._count}"

    def _hoist_reads(self, s: ast.stmt) -> tuple[list[ast.stmt], ast.stmt]:
        """Return assignments of the operands that a statement reads values from, and the statement after them: `f(x).item()` becomes two."""
        place = "test" if isinstance(s, ast.If) else "iter" if isinstance(s, ast.For) else "value"
        root = getattr(s, place, None)
        if not isinstance(root, ast.expr) or isinstance(s, (ast.While, ast.AugAssign)) or loads(root) & self.varying:
            return [], s
        found: list[ast.stmt] = []
        root = copy.deepcopy(root)
        if (
            isinstance(s, ast.If)
            and isinstance(root, ast.UnaryOp)
            and isinstance(root.op, ast.Not)
            and _is_computed(root.operand)
        ):
            root.operand = self._move_out(root.operand, found, s)
        elif isinstance(s, ast.If) and _is_computed(root):
            root = self._move_out(root, found, s)
        changed = self._hoist(root, found, s)
        s = copy.copy(s)
        setattr(s, place, changed)
        return found, s

    def _hoist(self, e: ast.expr, found: list[ast.stmt], at: ast.stmt) -> ast.expr:
        """Return the expression with the operands that it computes first moved out to `found`. What remains before them are variables and
        constants, so that the order of computations is kept."""
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and not self._is_fixed(e.func.value):
            inner = e.func.value
            reads = e.func.attr in _READERS and not isinstance(inner, ast.Name)
            e.func.value = self._move_out(inner, found, at) if reads else self._hoist(inner, found, at)
        elif isinstance(e, ast.Call) and e.args and not isinstance(e.args[0], (ast.Starred, ast.Name)):
            f, inner = e.func, e.args[0]
            if isinstance(f, ast.Name) and hasattr(builtins, f.id):
                whole = f.id in _TAKERS and not _reads(inner) and not isinstance(inner, (ast.Constant, ast.JoinedStr))
                e.args[0] = self._move_out(inner, found, at) if whole else self._hoist(inner, found, at)
            elif isinstance(f, ast.Attribute):  # of a variable: see above
                e.args[0] = self._hoist(inner, found, at)
        elif isinstance(e, ast.Compare):
            e.left = self._hoist(e.left, found, at)
        elif isinstance(e, ast.BinOp):
            e.left = self._hoist(e.left, found, at)
            if self._is_fixed(e.left):
                e.right = self._hoist(e.right, found, at)
        elif isinstance(e, ast.UnaryOp):
            e.operand = self._hoist(e.operand, found, at)
        elif isinstance(e, ast.Subscript):
            e.value = self._hoist(e.value, found, at)
        return e

    def _is_fixed(self, e: ast.expr) -> bool:
        """Return whether an expression is a constant or a variable of this function alone."""
        own = self.source.locals - {n for s in self.source.outer for n in s.names}
        return isinstance(e, ast.Constant) or (isinstance(e, ast.Name) and e.id in own)

    def _move_out(self, e: ast.expr, found: list[ast.stmt], at: ast.stmt) -> ast.expr:
        name = self._name()
        found.append(located(ast.Assign([ast.Name(name, ast.Store())], e), at))
        return located(ast.Name(name, ast.Load()), at)

    def _with_inner_calls(self, node: Any) -> Any:
        """Return a statement or expression whose calls of the user's functions and modules are compiled."""

        split = self

        class Calls(ast.NodeTransformer):
            def visit(self, e: Any) -> Any:
                if isinstance(e, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    return e
                self.generic_visit(e)
                named = isinstance(e, ast.Call) and isinstance(e.func, (ast.Name, ast.Attribute))
                if named and not hasattr(builtins, getattr(e.func, "id", "")):
                    look = ast.Call(ast.Name("_flambeau_inner", ast.Load()), [e.func], [])
                    e.func = located(look, e)
                    split.calls_others = True
                return e

        return Calls().visit(copy.deepcopy(node))

    def _inner_call(self, f: Any) -> Any:
        """Return the callable that a remaining statement calls instead of `f`."""
        if not _is_users(f):
            return f
        key = (id(f.__self__), id(f.__func__)) if isinstance(f, types.MethodType) else id(f)
        known = self.inner.get(key)
        if known is None:
            if len(self.inner) >= _MOST_INNER:
                return f
            known = self.inner[key] = (f, self._compiled(f, None, ""))  # f is kept: its id stays its own
        return known[1]


def _is_computed(e: ast.expr) -> bool:
    """Return whether an expression is one computation, whose truth value is used only at the end."""
    if isinstance(e, ast.Compare) and (len(e.ops) > 1 or isinstance(e.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn))):
        return False
    if any(isinstance(n, (ast.BoolOp, ast.IfExp, ast.NamedExpr)) for n in own_nodes(e)):
        return False
    return isinstance(e, (ast.Compare, ast.Call, ast.BinOp)) and not _reads(e)


def _reads(e: ast.expr) -> bool:
    """Return whether an expression reads a value by itself."""
    calls = [n.func for n in own_nodes(e) if isinstance(n, ast.Call)]
    methods = any(isinstance(f, ast.Attribute) and f.attr in _READERS for f in calls)
    return methods or any(isinstance(f, ast.Name) and f.id in _TAKERS for f in calls)


def _is_users(f: Any) -> bool:
    """Return whether a callable is worth compiling: a module, or a function that belongs to no library."""
    if isinstance(f, Module):
        return True
    plain = f.__func__ if isinstance(f, types.MethodType) else f
    if not isinstance(plain, types.FunctionType) or "_torchdynamo_disable" in plain.__dict__:
        return False
    if "_torchdynamo_orig_callable" in plain.__dict__ or plain.__code__.co_flags & 0x2A0:  # a generator or coroutine
        return False
    return is_users(plain.__code__, plain.__globals__)


def target(function: Any) -> tuple[Any, tuple, str]:
    """Return the function whose source is split, its leading arguments, and the reason if there is none."""
    if isinstance(function, types.MethodType) and function.__func__ is Module._call_impl:
        function = function.__self__
    if isinstance(function, types.MethodType):
        return function.__func__, (function.__self__,), ""
    if isinstance(function, Module):
        if type(function).__call__ is not Module.__call__:
            return None, (), "its class has a way of its own of being called"
        if not is_plain(function):
            return None, (), "it has hooks, or a forward of its own"
        return type(function).forward, (function,), ""
    return function, (), ""


def is_plain(module: Any) -> bool:
    """Return whether calling a module only calls its class's `forward`."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" not in module.__dict__ and not any(getattr(module, name, None) for name in hooks)


def find(function: Any, known: Source | None) -> tuple[Source, tuple] | str:
    """Return the source of a function that can be split and its leading arguments, or the reason why it cannot."""
    plain, first, why = target(function)
    if why:
        return why
    decorators: list[Any] = []
    while getattr(plain, "__code__", None) is _DECORATED:  # by no_grad() and its kind
        around = dict(zip(_DECORATED.co_freevars, plain.__closure__))
        decorators.insert(0, around["self"].cell_contents)
        plain = around["function"].cell_contents
    given = known if known is not None else source.of(plain)
    if isinstance(given, str):
        return given
    given.decorators = decorators
    why = refusal(given)
    return why or (given, first)
