"""From a Python function in the kernel language to a loop nest: statements and control flow.

The function is read through `ast` with its parameters bound: buffers and scalars become parameters of the kernel, everything else (None,
strings, flags, functions) is known at compile time, and tests on it choose code instead of emitting it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..core import dtype as dt
from ..core.dtype import dtype
from ..expr.node import Expr, const
from . import ir
from .loops_assignment import AssignmentLowering, Names
from .loops_language import Intrinsic, KernelError
from .loops_source import assignment_counts, contains_return, leaves_loop, parse
from .loops_values import Local, Mismatch, Value, as_value, converted, describe, is_number, join, truth
from .scalar_function import ScalarFunction

MAX_INLINE_DEPTH = 40


@dataclass
class Loop:
    """A loop whose body is being translated."""

    parallel: bool
    breaks: list[set[str]] = field(default_factory=list)  # what is defined at each `break`


@dataclass
class Returns:
    """Places in which `return` puts its values. Dtypes are settled when all returns are known."""

    sites: list[tuple[list[ir.Assign], list[Value]]] = field(default_factory=list)
    direct: tuple[Any, ...] | None = None  # the only return, at the end: no variable is needed
    is_tuple: bool = False
    flag: str | None = None  # set when some return leaves a loop


class Known(ast.stmt):
    """Statement that binds `name` to the compile-time `value`: an unrolled loop puts it before each copy of its body."""

    def __init__(self, name: str, value: int):
        super().__init__()
        self.name, self.value = name, value


class FunctionLowering(AssignmentLowering):
    """Lowering of one function body (the kernel's, or an inlined scalar function's) into `self.block`."""

    def __init__(self, function: Any, bindings: dict[str, Any], names: Names, block: list[Any], depth: int = 0):
        self.function, self.names, self.block, self.depth = function, names, block, depth
        self.file = function.__code__.co_filename
        self.tree = parse(function)
        self.env: dict[str, Any] = dict(bindings)  # name -> Local or an object known early
        self.defined: set[str] = set(bindings)
        self.loops: list[Loop] = []
        self.parallel: object = None  # the parallel loop around the current statement
        self.entered_in: object = None  # the one around the call, if this function is inlined
        self.returns = Returns()
        self.stores = False
        self.uncertain = 0  # how many loops and run-time branches surround the current statement
        self.assigned = assignment_counts(self.tree)
        self.node: ast.AST = self.tree
        self.root = block

    # --- errors, scopes, calls

    def fail(self, message: str, at: ast.AST | None = None) -> NoReturn:
        line = getattr(at or self.node, "lineno", self.tree.lineno)
        raise KernelError(f"{self.file}:{line}: in {self.function.__name__}: {message}")

    @contextmanager
    def into(self, block: list[ir.Statement]) -> Iterator[None]:
        outer, self.block = self.block, block
        try:
            yield
        finally:
            self.block = outer

    def inline(self, function: ScalarFunction, bindings: dict[str, Any], statement: bool) -> Any:
        if self.depth >= MAX_INLINE_DEPTH:
            self.fail(f"{function.__name__} calls itself: kernels have no recursion")
        callee = FunctionLowering(function.function, bindings, self.names, self.block, self.depth + 1)
        callee.parallel = callee.entered_in = self.parallel
        result = callee.run()
        if callee.stores and not statement:
            self.fail(
                f"{function.__name__} stores, so its call must stand alone or be all of an assignment's right side"
            )
        self.stores = self.stores or callee.stores
        return result

    # --- function bodies

    def run(self) -> Any:
        """Lower the whole body, and return what the function returns (None, a value, or a tuple of values)."""
        self._copy_changed_parameters()
        self.statements(self.tree.body)
        returns = self.returns
        if returns.direct is not None:
            return returns.direct if returns.is_tuple else returns.direct[0]
        if not returns.sites:
            return None
        return self._settle_returns()

    def _copy_changed_parameters(self) -> None:
        for name, value in list(self.env.items()):
            if name in self.assigned and (isinstance(value, Value) or is_number(value)):
                del self.env[name]
                self.assign_name(ast.Name(name, ast.Store()), value)

    def _settle_returns(self) -> Any:
        sites, results = self.returns.sites, []
        for position in range(len(sites[0][1])):
            values = [values[position] for _, values in sites]
            kind, weak = join(values)
            for assigns, found in sites:
                assigns[position].dtype = kind
                assigns[position].value = converted(found[position], kind)
            results.append(Value(ir.var(sites[0][0][position].name, kind), kind, weak))
        return tuple(results) if self.returns.is_tuple else results[0]

    def statements(self, nodes: list[ast.stmt]) -> bool:
        """Lower statements in order; return True if control never gets past them."""
        for position, node in enumerate(nodes):
            self.node = node
            rest = nodes[position + 1 :]
            if isinstance(node, ast.For) and self._loop_word(node) == "unroll":
                return self.statements([*self._unrolled(node), *rest])
            if isinstance(node, ast.If) and rest and contains_return(node):
                # What follows belongs to the branches that do not return.
                return self.branch(node, rest)
            try:
                ended = self.statement(node)
            except Mismatch as error:
                self.fail(str(error))
            if ended:
                return True
            if isinstance(node, (ast.For, ast.While)) and contains_return(node):
                return self._after_returning_loop(rest)
        return False

    def statement(self, node: ast.stmt) -> bool:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            self.fail(f"'{type(node).__name__}' statements are not part of the kernel language")
        return bool(method(node))

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):  # a docstring
            return
        if not isinstance(node.value, ast.Call):
            self.fail("this expression has no effect")
        self.lower_call(node.value, statement=True)

    def do_Return(self, node: ast.Return) -> bool:
        if self.parallel is not self.entered_in:
            self.fail("'return' cannot leave a parallel loop")
        returned = None if node.value is None else self.lower(node.value, statement=True)
        if self.depth == 0 and returned is not None:
            self.fail("a kernel returns nothing: store results into its buffers")
        if returned is not None:
            self._return_values(returned)
        if self.loops:
            self._leave_loop()
        return True

    def _return_values(self, returned: Any) -> None:
        returns = self.returns
        is_tuple = isinstance(returned, tuple) and not isinstance(returned, Value)
        parts = returned if is_tuple else (returned,)
        if not returns.sites and self.block is self.root and not self.loops:
            returns.direct, returns.is_tuple = parts, is_tuple
            return
        values = [as_value(v) for v in parts]
        if returns.sites and (is_tuple != returns.is_tuple or len(values) != len(returns.sites[0][1])):
            self.fail("every return must give the same number of values")
        if not returns.sites:
            names = [self.names.fresh("result") for _ in values]
        else:
            names = [a.name for a in returns.sites[0][0]]
        assigns = [ir.Assign(name, v.dtype, v.expr) for name, v in zip(names, values)]
        returns.is_tuple = is_tuple
        returns.sites.append((assigns, values))
        self.block.extend(assigns)

    # --- returns from inside loops: a flag, tested after each loop on the way out

    def _leave_loop(self) -> None:
        if self.returns.flag is None:
            self.fail("'return' inside this loop is not possible here")
        self.block.append(ir.Assign(self.returns.flag, dt.bool_, const(True)))
        self.block.append(ir.Break())

    def _after_returning_loop(self, rest: list[ast.stmt]) -> bool:
        flag = self.returns.flag
        assert flag is not None
        returned = ir.var(flag, dt.bool_)
        if self.loops:
            self.block.append(ir.If(returned, [ir.Break()]))
            return self.statements(rest)
        body: list[ir.Statement] = []
        with self.into(body):
            self.statements(rest)
        if body:
            self.block.append(ir.If(returned, [], body))
        return True

    # --- branches

    def do_If(self, node: ast.If) -> bool:
        return self.branch(node, [])

    def branch(self, node: ast.If, rest: list[ast.stmt]) -> bool:
        """Lower an if statement and the statements after it (`rest`, non-empty only when a branch returns)."""
        try:
            condition = self.lower(node.test)
            if not isinstance(condition, Value):
                return self.statements([*(node.body if condition else node.orelse), *rest])
            test = truth(condition).expr
        except Mismatch as error:
            self.fail(str(error), node)
        before = set(self.defined)
        then: list[ir.Statement] = []
        otherwise: list[ir.Statement] = []
        self.uncertain += 1
        with self.into(then):
            then_ends = self.statements([*node.body, *rest])
        after_then, self.defined = self.defined, set(before)
        with self.into(otherwise):
            otherwise_ends = self.statements([*node.orelse, *rest])
        after_otherwise = self.defined
        self.uncertain -= 1
        if then_ends and otherwise_ends:
            self.defined = before
        elif then_ends or otherwise_ends:
            self.defined = after_otherwise if then_ends else after_then
        else:
            self.defined = after_then & after_otherwise
        if then or otherwise:
            self.block.append(ir.If(test, then, otherwise))
        return then_ends and otherwise_ends

    # --- loops

    def do_Break(self, node: ast.Break) -> bool:
        self._check_loop("break")
        self.loops[-1].breaks.append(set(self.defined))
        self.block.append(ir.Break())
        return True

    def do_Continue(self, node: ast.Continue) -> bool:
        if not self.loops:
            self.fail("'continue' outside a loop that exists at run time")
        self.block.append(ir.Continue())
        return True

    def _check_loop(self, word: str) -> None:
        if not self.loops:
            self.fail(f"'{word}' outside a loop that exists at run time")
        if self.loops[-1].parallel:
            self.fail(f"'{word}' cannot leave a parallel loop: its iterations run at the same time")

    def do_While(self, node: ast.While) -> bool:
        if node.orelse:
            self.fail("'while ... else' is not part of the kernel language")
        self._prepare_return(node)
        prelude: list[ir.Statement] = []
        with self.into(prelude):
            condition = self.lower(node.test)
        forever = not isinstance(condition, Value)
        if forever and not condition:
            return False
        test = const(True) if not isinstance(condition, Value) else truth(condition).expr
        before, loop = set(self.defined), Loop(parallel=False)
        body = self._loop_body(node.body, loop)
        if prelude:  # the condition needs statements: test it at the top of an endless loop
            body = [*prelude, ir.If(test, [], [ir.Break()]), *body]
            test = const(True)
        self.block.append(ir.While(test, body))
        self.defined = set.intersection(*loop.breaks) if forever and loop.breaks else before
        return forever and not loop.breaks and not contains_return(node)

    def _loop_body(self, nodes: list[ast.stmt], loop: Loop) -> list[ir.Statement]:
        body: list[ir.Statement] = []
        self.loops.append(loop)
        self.uncertain += 1
        with self.into(body):
            self.statements(nodes)
        self.uncertain -= 1
        self.loops.pop()
        return body

    def _prepare_return(self, node: ast.For | ast.While) -> None:
        if contains_return(node) and self.returns.flag is None:
            self.returns.flag = self.names.fresh("returned")
        if contains_return(node) and not self.loops:
            assert self.returns.flag is not None
            self.block.append(ir.Assign(self.returns.flag, dt.bool_, const(False)))

    def do_For(self, node: ast.For) -> None:
        if node.orelse:
            self.fail("'for ... else' is not part of the kernel language")
        if not isinstance(node.target, ast.Name):
            self.fail("a loop has one variable")
        kind, arguments = self._loop_call(node.iter)
        self._prepare_return(node)
        cost: Expr | None = None
        if kind == "prange":
            if len(arguments) > 2:
                self.fail("prange takes the number of iterations and the cost of one")
            cost = self._integer(arguments.pop()) if len(arguments) == 2 else None
        start, stop, step = self._range(arguments)
        parallel = kind == "prange" and self.parallel is None
        self._emit_for(node, start, stop, step, parallel, cost if parallel else None, kind == "simd")

    def _emit_for(
        self, node: ast.For, start: Expr, stop: Expr, step: Expr, parallel: bool, cost: Expr | None, independent: bool
    ) -> None:
        assert isinstance(node.target, ast.Name)
        name = node.target.id
        known, before, outer = self.env.get(name), set(self.defined), self.parallel
        index = Value(ir.var(self.names.fresh(name), dt.int64), dt.int64)
        if parallel:
            self.parallel = node
        # A name that is also an ordinary local gets a copy of the loop's own index.
        copied = self.assigned.get(name, 0) > 0 and not parallel
        if copied:
            inner: list[ir.Statement] = []
            with self.into(inner):
                self.assign_name(node.target, index)
        else:
            inner, self.env[name] = [], index
            self.defined.add(name)
        inner += self._loop_body(node.body, Loop(parallel))
        self.parallel = outer
        self.block.append(ir.For(str(index.expr.args[0]), start, stop, step, inner, parallel, cost, independent))
        if not copied:
            self.env.pop(name, None)
            if known is not None:
                self.env[name] = known
        if parallel:
            private = [n for n, v in self.env.items() if isinstance(v, Local) and v.private_to is node]
            for n in private:
                self.env.pop(n)
        self.defined = before - {name} if parallel else before

    def _loop_word(self, node: ast.For) -> str | None:
        """Return the name of the intrinsic after `in`, or None."""
        function = node.iter.func if isinstance(node.iter, ast.Call) else None
        word = self.lower(function) if isinstance(function, ast.Name) else None
        return word.name if isinstance(word, Intrinsic) else None

    def _unrolled(self, node: ast.For) -> list[ast.stmt]:
        """Return the body once per value of the variable, which is a constant in each."""
        _, arguments = self._loop_call(node.iter)
        if not all(isinstance(a, int) for a in arguments) or not isinstance(node.target, ast.Name):
            self.fail("unroll needs numbers known when the kernel is compiled")
        if leaves_loop(node.body):
            self.fail("an unrolled loop has no 'break' or 'continue'")
        if self.assigned.get(node.target.id):
            self.fail(f"'{node.target.id}' is assigned elsewhere and cannot be the variable of an unrolled loop")
        copies: list[ast.stmt] = []
        for value in range(*arguments):
            copies += [ast.copy_location(Known(node.target.id, value), node), *node.body]
        return copies

    def do_Known(self, node: Known) -> None:
        self.env[node.name] = node.value
        self.defined.add(node.name)

    def _loop_call(self, node: ast.expr) -> tuple[str, list[Any]]:
        function = self.lower(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(function, Intrinsic) or function.kind != "loop":
            self.fail("loops run over range(...), prange(count, cost), simd(...) or unroll(...)", node)
        assert isinstance(node, ast.Call)
        arguments = [self.lower(a) for a in node.args]
        arguments += [self.lower(k.value) for k in node.keywords if k.arg == "cost"]
        if not 1 <= len(arguments) <= 3:
            self.fail(f"{function.name} takes 1 to 3 arguments", node)
        return function.name, arguments

    def _range(self, arguments: list[Any]) -> tuple[Expr, Expr, Expr]:
        start, step = 0, 1
        if len(arguments) == 1:
            stop = arguments[0]
        else:
            start, stop, *more = arguments
            step = more[0] if more else 1
        if step == 0 and not isinstance(step, Value):
            self.fail("the step of a loop must not be zero")
        if isinstance(step, Value):
            step = self.hold(step, "step")
        # The bounds are taken once, so the body may change what they were made of.
        return self._bound(start), self._bound(stop), self._integer(step)

    def _bound(self, value: Any) -> Expr:
        expr = self._integer(value)
        if expr.op == "const" or expr.op == "var" and not self._reassigned(expr.args[0]):
            return expr
        return self.hold(Value(expr, dt.int64), "bound").expr

    def _reassigned(self, name: str) -> bool:
        return any(isinstance(v, Local) and v.name == name for v in self.env.values())

    def _integer(self, value: Any) -> Expr:
        v = as_value(value)
        if v.dtype.category > 1:
            self.fail(f"an integer is needed here, not {describe(v)}")
        return converted(v, dt.int64)


# --- entry points --------------------------------------------------------------------------------------------------


def lower_kernel(function: Any, bindings: dict[str, Any], name: str, may_alias: bool = False) -> ir.Kernel:
    """Lower a kernel. `bindings` maps every parameter to an ir.Buffer, an ir.Scalar, or a compile-time object."""
    params = [b for b in bindings.values() if isinstance(b, (ir.Buffer, ir.Scalar))]
    env = {n: _scalar_value(b) if isinstance(b, ir.Scalar) else b for n, b in bindings.items()}
    body: list[ir.Statement] = []
    FunctionLowering(function, env, Names(list(bindings)), body).run()
    return ir.Kernel(name, params, body, may_alias, ir.LoopCall(name, bindings))


def _scalar_value(scalar: ir.Scalar) -> Value:
    return Value(ir.var(scalar.name, scalar.dtype), scalar.dtype, weak=scalar.dtype is dt.float64)


def lower_scalar(
    function: ScalarFunction, arg_dtypes: tuple[dtype, ...]
) -> tuple[list[str], list[ir.Statement], Value]:
    """Lower a scalar function on its own: return parameter names, statements, and the value it returns."""
    code = function.function.__code__
    if code.co_argcount != len(arg_dtypes):
        raise KernelError(f"{function.__name__} takes {code.co_argcount} arguments, not {len(arg_dtypes)}")
    names = list(code.co_varnames[: code.co_argcount])
    env: dict[str, Any] = {n: Value(ir.var(n, d), d) for n, d in zip(names, arg_dtypes)}
    body: list[ir.Statement] = []
    lowering = FunctionLowering(function.function, env, Names(names), body, depth=1)
    result = lowering.run()
    if not isinstance(result, Value) and not is_number(result):
        lowering.fail("a function used in a formula returns one number")
    return names, body, as_value(result)
