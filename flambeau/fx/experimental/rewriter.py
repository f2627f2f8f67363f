"""Tracing with asserts: the program's source is rewritten so that `assert` becomes a call that can be traced."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
from types import FunctionType
from typing import Any

import flambeau

from ...nn import Module
from .._symbolic_trace import Tracer
from ..graph import Graph


class AST_Rewriter(ast.NodeTransformer):  # noqa: N801
    """Rewrites functions: `assert x, m` to `torch._assert(x, m)`, and `x: T = y` to `x = annotate(y, T)`."""

    def rewrite(self, fn: Any) -> FunctionType:
        """Return the function with its asserts rewritten."""
        function = inspect.unwrap(getattr(fn, "__func__", fn))
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        changed = ast.fix_missing_locations(self.visit(tree))
        space = dict(function.__globals__)
        exec(compile(changed, "", "exec", dont_inherit=True), space)
        made = space[function.__name__]
        # Of the original's globals, so that what a tracer changes there is seen.
        found = FunctionType(made.__code__, function.__globals__, made.__name__, made.__defaults__, made.__closure__)
        found = functools.update_wrapper(found, made)  # type: ignore[assignment]
        found.__kwdefaults__ = copy.copy(made.__kwdefaults__)
        function.__globals__.setdefault("torch", flambeau)
        return found

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:  # noqa: N802
        message = node.msg if node.msg else ast.Constant(value="")
        name = ast.Attribute(value=ast.Name(id="torch", ctx=ast.Load()), attr="_assert", ctx=ast.Load())
        return ast.copy_location(ast.Expr(ast.Call(func=name, args=[node.test, message], keywords=[])), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:  # noqa: N802
        if node.value is None:
            return node
        call = ast.Call(func=ast.Name(id="annotate", ctx=ast.Load()), args=[node.value, node.annotation], keywords=[])
        return ast.copy_location(ast.Assign(targets=[node.target], value=call), node)


class RewritingTracer(Tracer):
    """Traces a program whose asserts stay in the graph."""

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(program: Any) -> Any:
    if not isinstance(program, Module):
        return AST_Rewriter().rewrite(program)

    class RewrittenModule(Module):
        def __init__(self, original: Module) -> None:
            super().__init__()
            for name, value in vars(original).items():
                self.__dict__[name] = copy.copy(_rewrite(value) if isinstance(value, Module) else value)

    RewrittenModule.forward = AST_Rewriter().rewrite(program.forward)
    return RewrittenModule(program)
