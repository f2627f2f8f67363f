"""The expression half of the loop-kernel front end: the meaning and dtype of each Python expression."""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.functions import sqrt as sqrt_formula
from ..expr.node import Expr, binary, bitcast, cast, const, node
from . import ir
from .loops_language import BUILTINS, Intrinsic, compute_dtype
from .loops_values import (
    Local,
    Mismatch,
    Value,
    arithmetic_operand,
    as_value,
    converted,
    describe,
    is_number,
    is_safe,
    join,
    loaded,
    truth,
)
from .scalar_function import ScalarFunction, resolve

_ARITHMETIC: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("add", operator.add), ast.Sub: ("sub", operator.sub), ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv), ast.FloorDiv: ("floordiv", operator.floordiv),
    ast.Mod: ("mod", operator.mod), ast.Pow: ("pow", operator.pow), ast.BitAnd: ("and", operator.and_),
    ast.BitOr: ("or", operator.or_), ast.BitXor: ("xor", operator.xor), ast.LShift: ("shl", operator.lshift),
    ast.RShift: ("shr", operator.rshift),
}  # fmt: skip
_UNARY: dict[type, Callable[..., Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_BITWISE = ("and", "or", "xor")
_INTEGERS_ONLY = (*_BITWISE, "shl", "shr")

_COMPARISONS: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
    ast.In: ("in", lambda a, b: a in b),
    ast.NotIn: ("not in", lambda a, b: a not in b),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
}


def _operands(values: list[Value], kind: dtype) -> list[Expr]:
    exprs = [converted(v, kind) for v in values]
    # Constants alone would be typed as weak by the emitters.
    return [cast(e, kind) for e in exprs] if all(e.op == "const" for e in exprs) else exprs


class ExpressionLowering:
    """Lowering of expressions in a function body. Statements they need (conditional loads, inlined calls) go to `self.block` first."""

    function: Any
    env: dict[str, Any]
    defined: set[str]
    assigned: dict[str, int]
    block: list[ir.Statement]
    names: Any

    # What the statement half provides.
    def fail(self, message: str, at: ast.AST | None = None) -> NoReturn:
        raise NotImplementedError

    def into(self, block: list[ir.Statement]) -> AbstractContextManager[None]:
        raise NotImplementedError

    def hold(self, value: Value, base: str = "held") -> Value:
        raise NotImplementedError

    def inline(self, function: ScalarFunction, bindings: dict[str, Any], statement: bool) -> Any:
        raise NotImplementedError

    def lower(self, expression: ast.expr, statement: bool = False) -> Any:
        """Return the meaning of an expression: a Value, or a compile-time object. `statement`: nothing else is evaluated with it, so a call
        that stores is allowed."""
        if isinstance(expression, ast.Call):
            return self.lower_call(expression, statement)
        method = getattr(self, f"on_{type(expression).__name__}", None)
        if method is None:
            self.fail(f"'{type(expression).__name__}' expressions are not part of the kernel language", expression)
        try:
            return method(expression)
        except Mismatch as error:
            self.fail(str(error), expression)

    # --- leaves

    def on_Constant(self, expression: ast.Constant) -> Any:
        return expression.value

    def on_Name(self, expression: ast.Name) -> Any:
        name = expression.id
        if name in self.env:
            if name not in self.defined:
                self.fail(f"'{name}' may not have a value here: assign it on every path before", expression)
            found = self.env[name]
            return found.value if isinstance(found, Local) else found
        if name in self.assigned:
            self.fail(f"'{name}' is used before it is assigned, or outside the parallel loop it belongs to", expression)
        known, value = resolve(self.function, name)
        if not known:
            self.fail(f"undefined name '{name}' (a loop variable exists only inside its loop)", expression)
        return value

    def on_Tuple(self, expression: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.lower(e) for e in expression.elts)

    def on_Attribute(self, expression: ast.Attribute) -> Any:
        owner = self.lower(expression.value)
        if isinstance(owner, ir.Buffer) and expression.attr == "dtype":
            return owner.dtype
        if isinstance(owner, (dtype, types.ModuleType)) and hasattr(owner, expression.attr):
            return getattr(owner, expression.attr)
        self.fail(f"{describe(owner)} has no attribute '{expression.attr}' in kernels", expression)

    def on_Subscript(self, expression: ast.Subscript) -> Any:
        owner = self.lower(expression.value)
        if isinstance(owner, tuple) and not isinstance(owner, Value):
            index = self.lower(expression.slice)
            if not isinstance(index, int):
                self.fail("a tuple is indexed by a number known when the kernel is compiled", expression)
            return owner[index]
        buffer, index_expr = self.element(expression)
        return self.read(buffer, index_expr)

    def element(self, expression: ast.Subscript) -> tuple[ir.Buffer, Expr]:
        buffer = self.lower(expression.value)
        if not isinstance(buffer, ir.Buffer):
            self.fail(f"only buffers and local arrays have elements, not {describe(buffer)}", expression)
        index = self.lower(expression.slice)
        if isinstance(index, tuple) and not isinstance(index, Value) or isinstance(expression.slice, ast.Slice):
            self.fail("a buffer is indexed by one integer, the position of the element in memory", expression)
        v = as_value(index)
        if v.dtype.category > 1 or v.dtype is dt.bool_:
            self.fail(f"an index is an integer, not {describe(v)}", expression)
        return buffer, converted(v, dt.int64)

    def read(self, buffer: ir.Buffer, index: Expr) -> Value:
        return loaded(buffer, index)

    # --- operators

    def on_BinOp(self, expression: ast.BinOp) -> Any:
        return self.arithmetic(expression.op, self.lower(expression.left), self.lower(expression.right))

    def arithmetic(self, op: ast.operator, left: Any, right: Any) -> Any:
        if type(op) not in _ARITHMETIC:
            self.fail(f"the operator {type(op).__name__} is not part of the kernel language")
        name, python = _ARITHMETIC[type(op)]
        if not isinstance(left, Value) and not isinstance(right, Value):
            return self._evaluate(python, left, right)
        a, b = as_value(left), as_value(right)
        if name in _BITWISE and a.dtype is dt.bool_ and b.dtype is dt.bool_:
            return Value(binary(name, a.expr, b.expr), dt.bool_)
        a, b = arithmetic_operand(a), arithmetic_operand(b)
        kind, weak = join([a, b])
        if name in _INTEGERS_ONLY and kind.category != 1:
            raise Mismatch(f"'{name}' works on integers, not on {a.dtype.name} and {b.dtype.name}")
        if name == "div" and kind.category == 1:
            kind, weak = dt.float64, True
        if name == "pow":
            return self._power(a, b, right, kind, weak)
        return Value(binary(name, *_operands([a, b], kind)), kind, weak)

    def _power(self, a: Value, b: Value, exponent: Any, kind: dtype, weak: bool) -> Value:
        base = converted(a, kind)
        if not isinstance(exponent, Value) and exponent in (2, 3):
            square = base * base
            return Value(square if exponent == 2 else square * base, kind, weak)
        if exponent == 0.5 and not isinstance(exponent, Value):
            return Value(sqrt_formula(base), kind, weak)
        return Value(binary("pow", *_operands([a, b], kind)), kind, weak)

    def _evaluate(self, function: Callable[..., Any], *values: Any) -> Any:
        """Compute an operation on compile-time objects."""
        try:
            return function(*values)
        except (TypeError, ValueError, ArithmeticError) as error:
            shown = ", ".join(describe(v) for v in values)
            self.fail(f"cannot compute this from {shown}: {error}")

    def on_UnaryOp(self, expression: ast.UnaryOp) -> Any:
        operand = self.lower(expression.operand)
        if isinstance(expression.op, ast.Not):
            if not isinstance(operand, Value):
                return not operand
            return Value(node("logical_not", truth(operand).expr), dt.bool_)
        if not isinstance(operand, Value):
            return self._evaluate(_UNARY[type(expression.op)], operand)
        if isinstance(expression.op, ast.Invert):
            if operand.dtype.category != 1:
                raise Mismatch(f"'~' works on integers, not on {describe(operand)}; use 'not'")
            return Value(node("not", operand.expr), operand.dtype)
        operand = arithmetic_operand(operand)
        if isinstance(expression.op, ast.UAdd):
            return operand
        return Value(node("neg", *_operands([operand], operand.dtype)), operand.dtype, operand.weak)

    def on_Compare(self, expression: ast.Compare) -> Any:
        left = self.lower(expression.left)
        result: Any = True
        for op, following in zip(expression.ops, expression.comparators):
            right = self.lower(following)
            one = self._compare(op, left, right)
            if not isinstance(one, Value) and not one:
                return False
            if not isinstance(result, Value):
                result = one
            elif isinstance(one, Value):
                result = Value(binary("and", result.expr, one.expr), dt.bool_)
            left = right
        return result

    def _compare(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        name, python = _COMPARISONS[type(op)]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return python(left, right)
        if not isinstance(left, Value) and not isinstance(right, Value):
            return self._evaluate(python, left, right)
        if name in ("in", "not in"):
            self.fail(f"'{name}' works on objects known when the kernel is compiled")
        a, b = as_value(left), as_value(right)
        kind, _ = join([a, b])
        return Value(binary(name, *_operands([a, b], kind)), dt.bool_)

    def on_BoolOp(self, expression: ast.BoolOp) -> Any:
        is_and = isinstance(expression.op, ast.And)
        result: Any = is_and
        for part in expression.values:
            right_block: list[ir.Statement] = []
            with self.into(right_block):
                right = self.lower(part)
            if not isinstance(right, Value):
                if bool(right) is not is_and:
                    return not is_and
                continue
            right = truth(right)
            if not isinstance(result, Value):
                self.block.extend(right_block)
                result = right
            else:
                result = self._short_circuit(result, right, right_block, is_and)
        return result

    def _short_circuit(self, left: Value, right: Value, right_block: list[Any], is_and: bool) -> Value:
        if not right_block and is_safe(right.expr):
            return Value(binary("and" if is_and else "or", left.expr, right.expr), dt.bool_)
        name = self.names.fresh("test")
        self.block.append(ir.Assign(name, dt.bool_, left.expr))
        tested = ir.var(name, dt.bool_)
        right_block.append(ir.Assign(name, dt.bool_, right.expr))
        self.block.append(ir.If(tested, right_block) if is_and else ir.If(tested, [], right_block))
        return Value(tested, dt.bool_)

    def on_IfExp(self, expression: ast.IfExp) -> Any:
        condition = self.lower(expression.test)
        if not isinstance(condition, Value):
            return self.lower(expression.body if condition else expression.orelse)
        test = truth(condition).expr
        then: list[ir.Statement] = []
        otherwise: list[ir.Statement] = []
        with self.into(then):
            a = as_value(self.lower(expression.body))
        with self.into(otherwise):
            b = as_value(self.lower(expression.orelse))
        kind, weak = join([a, b])
        if not then and not otherwise and is_safe(a.expr) and is_safe(b.expr):
            return self._where(test, a, b)
        name = self.names.fresh("chosen")
        then.append(ir.Assign(name, kind, converted(a, kind)))
        otherwise.append(ir.Assign(name, kind, converted(b, kind)))
        self.block.append(ir.If(test, then, otherwise))
        return Value(ir.var(name, kind), kind, weak)

    def _where(self, test: Expr, a: Value, b: Value) -> Value:
        kind, weak = join([a, b])
        return Value(node("where", test, *_operands([a, b], kind)), kind, weak)

    # --- calls

    def lower_call(self, expression: ast.Call, statement: bool = False) -> Any:
        function = self.lower(expression.func)
        if any(isinstance(a, ast.Starred) for a in expression.args) or any(k.arg is None for k in expression.keywords):
            self.fail("calls take plain arguments", expression)
        arguments = [self.lower(a) for a in expression.args]
        keywords = {str(k.arg): self.lower(k.value) for k in expression.keywords}
        if isinstance(function, ScalarFunction):
            return self._call_scalar(function, arguments, keywords, statement, expression)
        if isinstance(function, type) and function in (min, max, abs, int, float, bool, divmod):
            function = BUILTINS[function.__name__]
        if not isinstance(function, Intrinsic):
            self.fail(f"{describe(function)} cannot be called in a kernel; is it a @scalar_function?", expression)
        if keywords:
            self.fail(f"{function.name} takes no keyword arguments", expression)
        try:
            return self._intrinsic(function, arguments)
        except Mismatch as error:
            self.fail(str(error), expression)

    def _call_scalar(
        self, function: ScalarFunction, arguments: list[Any], keywords: dict[str, Any], statement: bool, at: ast.Call
    ) -> Any:
        code = function.function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults = function.function.__defaults__ or ()
        bindings: dict[str, Any] = dict(zip(names[code.co_argcount - len(defaults) : code.co_argcount], defaults))
        bindings.update(function.function.__kwdefaults__ or {})
        bindings.update(zip(names, arguments))
        bindings.update(keywords)
        if len(arguments) > code.co_argcount or set(bindings) != set(names):
            self.fail(f"{function.__name__} takes ({', '.join(names)})", at)
        for name, value in bindings.items():
            if isinstance(value, Value) and value.expr.op not in ("var", "const"):
                bindings[name] = self.hold(value, name)
        return self.inline(function, bindings, statement)

    def _intrinsic(self, word: Intrinsic, arguments: list[Any]) -> Any:
        handler = getattr(self, f"word_{word.kind}", None)
        if handler is None:
            self.fail(f"{word.name} does not belong in an expression")
        known = not any(isinstance(a, Value) for a in arguments)
        if known and word.kind in ("float", "same", "predicate", "abs", "fold", "truth", "weak_float", "divmod"):
            if not all(is_number(a) for a in arguments):
                raise Mismatch(f"{word.name} takes numbers, not {', '.join(map(describe, arguments))}")
            return self._evaluate(word.python, *arguments)
        try:
            return handler(word, *arguments)
        except TypeError as error:
            if isinstance(error, (Mismatch,)) or "positional argument" not in str(error):
                raise
            self.fail(f"wrong number of arguments for {word.name}")

    def word_float(self, word: Intrinsic, *arguments: Any) -> Value:
        values = [arithmetic_operand(as_value(a)) for a in arguments]
        kind, weak = join(values)
        if kind.category < 2:
            kind, weak = dt.float64, True
        assert word.formula is not None
        return Value(word.formula(*_operands(values, kind)), kind, weak)

    def word_same(self, word: Intrinsic, *arguments: Any) -> Value:
        values = [arithmetic_operand(as_value(a)) for a in arguments]
        kind, weak = join(values)
        if kind.category == 1 and word.name in ("floor", "ceil", "trunc", "round"):
            return values[0]
        assert word.formula is not None
        return Value(word.formula(*_operands(values, kind)), kind, weak)

    def word_fold(self, word: Intrinsic, *arguments: Any) -> Value:
        if len(arguments) < 2:
            raise Mismatch(f"{word.name} takes two or more numbers")
        result = arguments[0]
        for other in arguments[1:]:
            result = self.word_same(word, result, other)
        return result

    def word_predicate(self, word: Intrinsic, argument: Any) -> Any:
        v = as_value(argument)
        if v.dtype.category < 2 and word.name != "signbit":
            return word.name == "isfinite"
        assert word.formula is not None
        return Value(word.formula(*_operands([arithmetic_operand(v)], v.dtype)), dt.bool_)

    def word_abs(self, word: Intrinsic, argument: Any) -> Value:
        v = arithmetic_operand(as_value(argument))
        return Value(node("abs", *_operands([v], v.dtype)), v.dtype.to_real(), v.weak)

    def word_part(self, word: Intrinsic, argument: Any) -> Value:
        v = as_value(argument)
        assert word.formula is not None
        return Value(word.formula(*_operands([v], v.dtype)), v.dtype.to_real(), v.weak)

    def word_where(self, word: Intrinsic, condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, Value):
            return a if condition else b
        return self._where(truth(condition).expr, as_value(a), as_value(b))

    def word_truth(self, word: Intrinsic, argument: Any) -> Value:
        return truth(as_value(argument))

    def word_weak_float(self, word: Intrinsic, argument: Any) -> Value:
        return Value(converted(self._real_number(argument), dt.float64), dt.float64, True)

    def word_divmod(self, word: Intrinsic, a: Any, b: Any) -> tuple[Any, ...]:
        return self.arithmetic(ast.FloorDiv(), a, b), self.arithmetic(ast.Mod(), a, b)

    def word_cast(self, word: Intrinsic, argument: Any) -> Value:
        assert word.to is not None
        return self._cast(argument, word.to)

    def word_like(self, word: Intrinsic, target: Any, argument: Any) -> Value:
        return self._cast(argument, compute_dtype(self._dtype_of(target)))

    def _cast(self, argument: Any, to: dtype) -> Value:
        v = as_value(argument) if to.is_complex else self._real_number(argument)
        if v.expr.op == "const" and to.category == 1 and isinstance(v.expr.args[0], float):
            number = v.expr.args[0]
            if number - number != 0:
                raise Mismatch(f"{number} is not a {to.name}")
            return Value(const(int(number)), to)
        if to is dt.bool_:
            return truth(v)
        return Value(converted(v, to), to)

    def _real_number(self, argument: Any) -> Value:
        v = as_value(argument)
        if v.dtype.is_complex:
            raise Mismatch("a complex number does not convert to a real one: take real(...) or imag(...)")
        return v

    def word_bitcast(self, word: Intrinsic, argument: Any, target: Any) -> Value:
        v, to = as_value(argument), self._dtype_of(target)
        if v.dtype.itemsize != to.itemsize:
            raise Mismatch(f"bitcast keeps the size: {v.dtype.name} and {to.name} differ")
        (source,) = _operands([v], v.dtype)
        return Value(bitcast(source, to), to)

    def word_local(self, word: Intrinsic, target: Any, size: Any) -> ir.Buffer:
        if not isinstance(size, int) or size <= 0:
            raise Mismatch("the size of a local array is a positive number known when the kernel is compiled")
        buffer = ir.Buffer(self.names.fresh("array"), opmath(self._dtype_of(target)), size)
        self.block.append(ir.DeclareLocal(buffer))
        return buffer

    def _dtype_of(self, target: Any) -> dtype:
        if isinstance(target, ir.Buffer):
            return target.dtype
        if isinstance(target, Intrinsic) and target.to is not None:
            return target.to
        if isinstance(target, dtype):
            return target
        raise Mismatch(f"a buffer or a dtype is needed here, not {describe(target)}")
