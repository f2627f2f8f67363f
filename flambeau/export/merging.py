"""Comparison of the graphs of one program, run with several sizes: what differs is expressed by the sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..fx.node import Node
from .dynamic_shapes import Sizes
from .graph_signature import InputKind, SymIntArgument
from .symbols import Expression, Product, Symbol, factored, fitted

_SIZE_INCREMENTS = (0, 3, 7, 12, 22)
EXAMPLES = len(_SIZE_INCREMENTS)  # how many runs a program with sizes that may change takes


class Unsupported(RuntimeError):
    """Raised when a program cannot be exported."""


def other_sizes(sizes: Sizes, number: int) -> dict[Symbol, int]:
    """Return the input sizes of a second trace."""
    return {s: _other_size(sizes, s, number, place) for place, s in enumerate(sizes.symbols)}


def _other_size(sizes: Sizes, symbol: Symbol, number: int, place: int) -> int:
    """Return another size to try, within the symbol's bounds."""
    low, high = sizes.ranges[symbol]
    wanted = symbol.hint + _SIZE_INCREMENTS[number] * (2 * place + 1) + place
    if high is None or wanted <= high:
        return wanted
    room = [v for v in range(max(low, 2), high + 1) if v != symbol.hint] or [symbol.hint]
    return room[(number * 7 + place * 3) % len(room)]


def smaller_sizes(sizes: Sizes) -> list[dict[Symbol, int]]:
    """Return sizes below the example's to try, the smallest first: `min(x.size(0), 5)` of eight rows is no constant."""
    hints = {s: s.hint for s in sizes.symbols}
    lowest = {s: min(max(sizes.ranges[s][0], 2), s.hint) for s in sizes.symbols}
    tried = [{s: low + (s.hint - low) * part // 4 for s, low in lowest.items()} for part in range(4)]
    return [each for each in tried if each != hints]


def _are_equal_constants(a: Tensor, b: Tensor) -> bool:
    """Return whether two constants are equal, where NaNs count as equal."""
    return a.shape == b.shape and a.dtype is b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())


def _is_whole(t: Tensor) -> bool:
    return all(isinstance(n, (int, float)) and float(n).is_integer() for n in t.flatten().tolist())


class _Ambiguous(Exception):
    """Raised when several expressions fit the numbers of all runs, with the sizes of a run that tells them apart."""

    def __init__(self, run: dict[Symbol, int]) -> None:
        super().__init__()
        self.run = run


_FAR = 128  # how far from the example's a size that tells expressions apart may be


class Merger:
    """Compares the graphs of several runs and replaces what differs by expressions of the sizes; `again` makes another run."""

    def __init__(
        self, traces: list[Any], runs: list[dict[Symbol, int]], sizes: Sizes, again: Callable[[dict], Any]
    ) -> None:
        self.traces, self.runs, self.sizes, self.again = traces, runs, sizes, again
        self.failed: list[dict[Symbol, int]] = []  # runs that the program does not do
        self.graph = traces[0].graph
        self.nodes: dict[Expression, Node] = {}

    def merge(self) -> None:
        while True:
            try:
                return self._merge()
            except _Ambiguous as more:
                try:
                    found = self.again(more.run)
                except Exception:  # whatever it is: another size may do
                    self.failed.append(more.run)
                    continue
                self.traces.append(found)
                self.runs.append(more.run)

    def _merge(self) -> None:
        rows = [list(t.graph.nodes) for t in self.traces]
        if len({len(row) for row in rows}) != 1:
            raise Unsupported("the program does something else for other sizes: its graph has another length")
        for nodes in zip(*rows):
            if len({(n.op, n.target if n.op == "call_function" else n.name) for n in nodes}) != 1:
                raise Unsupported(f"the program does something else for other sizes, from {nodes[0].format_node()} on")
        changes: list[tuple[Node, tuple, dict]] = []
        for nodes in zip(*rows):
            self._shapes(list(nodes))
            if nodes[0].op == "call_function":
                args = self._merge_values([n.args for n in nodes], nodes[0])
                kwargs = self._merge_values([n.kwargs for n in nodes], nodes[0])
                changes.append((nodes[0], args, kwargs))
        self._merge_values([row[-1].args for row in rows], rows[0][-1])
        for name, branch in self.traces[0].pieces.items():
            _BranchMerger([t.pieces[name] for t in self.traces], self)._merge()
            branch.recompile()
        for node, args, kwargs in changes:
            node.args, node.kwargs = self._compute(args, node), self._compute(kwargs, node)
        for row in zip(*(getattr(trace, "lifted", ()) for trace in self.traces)):
            if not all(_are_equal_constants(tensor, row[0][1]) for _, tensor in row):
                self._compute_constant(row[0][0], [tensor for _, tensor in row])
        self._merge_outputs([row[-1] for row in rows])

    def _compute_constant(self, node: Node, tensors: list[Tensor]) -> None:
        """Replace a constant tensor of numbers that depend on the sizes (`torch.tensor([x.shape[0]])`) by nodes that compute it."""
        first, reader, aten = tensors[0], self.traces[0].reader, flambeau.ops.aten
        if len({t.shape for t in tensors}) != 1 or not all(map(_is_whole, tensors)):
            raise Unsupported(f"the constant {node.name} depends on the sizes of the inputs in a way that is not known")
        spec = next(s for s in reader.inputs if s.arg.name == node.name)
        options = {"dtype": first.dtype, "device": first.device, "pin_memory": False}

        def made(parts: list[Tensor], user: Node) -> Node:
            if parts[0].dim():
                inner = [made(list(each), user) for each in zip(*(p.unbind() for p in parts))]
                found = self.graph.create_node("call_function", aten.stack.default, (inner,), {}, "stack")
            else:
                number = self._compute(self._expression([int(p) for p in parts], node), node)
                target = aten.scalar_tensor.default
                found = self.graph.create_node("call_function", target, (number,), options, "scalar_tensor")
            shape, strides = list(parts[0].shape), list(parts[0].stride())
            found.meta = {**user.meta, "val": parts[0], "sizes": shape, "strides": strides}
            return found

        for user in list(node.users):
            with self.graph.inserting_before(user):
                whole = made(tensors, user)
            lifted = user.target is aten.lift_fresh_copy.default
            user.replace_all_uses_with(whole) if lifted else user.replace_input_with(node, whole)
            if lifted:
                self.graph.erase_node(user)
        self.graph.erase_node(node)
        reader.inputs.remove(spec)
        del reader.constants_found[spec.target]

    def _merge_outputs(self, nodes: list[Node]) -> None:
        """Make the sizes that the program returns symbolic."""
        merged = self._merge_values([n.args for n in nodes], nodes[0])
        for position, value in enumerate(merged[0]):
            if isinstance(value, Expression):
                spec = self.traces[0].signature.output_specs[position]
                spec.arg = SymIntArgument(self._node(value).name)
        nodes[0].args = self._compute(merged, nodes[0])

    def _shapes(self, nodes: list[Node]) -> None:
        values: list[Any] = [n.meta.get("val") for n in nodes]
        if isinstance(values[0], Tensor):
            dims = range(values[0].dim())
            nodes[0].meta["sizes"] = [self._expression([v.shape[d] for v in values], nodes[0]) for d in dims]
            nodes[0].meta["strides"] = [self._expression([v.stride(d) for v in values], nodes[0]) for d in dims]

    def _expression(self, numbers: list[int], node: Node) -> Any:
        fit = fitted(numbers, self.runs, self.sizes.symbols)
        found = self._told_apart(fit) if len(fit) > 1 else fit[0] if fit else None
        if found is None:  # a stride, or dimensions put together
            near = [size for n in (node, *node.all_input_nodes) for size in n.meta.get("sizes", ())]
            found = factored(numbers, self.runs, (size for size in near if isinstance(size, Expression)))
        if found is None:
            raise Unsupported(
                f"a size at {node.format_node()} depends on the sizes of the inputs in a way that is not known: {numbers}"
            )
        return found.terms.get((), 0) if found.is_constant else found

    def _told_apart(self, fit: list[Expression]) -> Expression:
        """Return one of several expressions if they are equal for all sizes that can be tried; else ask for another run."""
        (symbol,) = fit[0].symbols
        low, high = self.sizes.ranges[symbol]
        above, below = range(symbol.hint + 1, symbol.hint + _FAR), range(symbol.hint - 1, max(low, 2) - 1, -1)
        for size in (*above, *below):
            run = {**self.runs[0], symbol: size}
            if (high is None or size <= high) and run not in self.failed and len({f.value(run) for f in fit}) > 1:
                raise _Ambiguous(run)
        return fit[0]

    def _merge_values(self, values: list[Any], node: Node) -> Any:
        first = values[0]
        if isinstance(first, (list, tuple)):
            if len({len(v) for v in values}) != 1:
                raise Unsupported(f"the program does something else for other sizes at {node.format_node()}")
            items = [self._merge_values(list(each), node) for each in zip(*values)]
            return tuple(items) if isinstance(first, tuple) else items
        if isinstance(first, dict):
            return {key: self._merge_values([v[key] for v in values], node) for key in first}
        if isinstance(first, int) and not isinstance(first, bool):
            return self._expression(values, node)
        if isinstance(first, float) and len(set(values)) != 1:
            raise Unsupported(f"a number at {node.format_node()} depends on the sizes of the inputs: {values}")
        return first

    def _compute(self, value: Any, node: Node) -> Any:
        if isinstance(value, Expression):
            return self._node(value)
        if isinstance(value, tuple):
            return tuple(self._compute(v, node) for v in value)
        if isinstance(value, list):
            return [self._compute(v, node) for v in value]
        if isinstance(value, dict):
            return {k: self._compute(v, node) for k, v in value.items()}
        return value

    # -- nodes for expressions --

    def _node(self, wanted: Expression) -> Node:
        """Return a node that computes an expression, placed right after the inputs."""
        if wanted in self.nodes:
            return self.nodes[wanted]
        if (
            len(wanted.terms) == 1
            and wanted.divisor == 1
            and list(wanted.terms.values()) == [1]
            and len(wanted.symbols) == 1
        ):
            ((term, _),) = wanted.terms.items()
            if len(term) == 1:
                return self._symbol(term[0])
        if isinstance(wanted, Product):
            made: Any = None
            for one in map(self._node, wanted.factors):
                made = one if made is None else self._add(operator.mul, (made, one), self._of(made, one))
            return made if wanted.times == 1 else self._add(operator.mul, (made, wanted.times), wanted)
        if wanted.divisor != 1:
            inner = self._node(Expression(wanted.terms))
            return self._add(operator.floordiv, (inner, wanted.divisor), wanted)
        total: Any = None
        for term, factor in sorted(wanted.terms.items(), key=lambda item: (not item[0], [s.name for s in item[0]])):
            piece = self._product(term, factor)
            total = piece if total is None else self._sum(total, piece, wanted)
        return total

    def _of(self, *nodes: Node) -> Product:
        """Return the product of the expressions that nodes compute."""
        return Product(f for n in nodes for f in getattr(n.meta["symbolic"], "factors", (n.meta["symbolic"],)))

    def _sum(self, left: Any, right: Any, wanted: Expression) -> Node:
        return self._add(operator.add, (left, right), wanted)

    def _product(self, term: tuple[Symbol, ...], factor: int) -> Any:
        if not term:
            return factor
        value: Any = self._symbol(term[0])
        known = Expression.of(term[0])
        for symbol in term[1:]:
            known = Expression({(*next(iter(known.terms)), symbol): 1})
            value = self._add(operator.mul, (value, self._symbol(symbol)), known)
        return value if factor == 1 else self._add(operator.mul, (value, factor), known * factor)

    def _symbol(self, symbol: Symbol) -> Node:
        wanted = Expression.of(symbol)
        if wanted not in self.nodes:
            for number, dims in self.sizes.of_leaf.items():
                for dim, size in dims.items():
                    if size == wanted:
                        return self._add(flambeau.ops.aten.sym_size.int, (self._user_nodes()[number], dim), wanted)
            raise Unsupported(f"no input has the size {symbol}")
        return self.nodes[wanted]

    def _user_nodes(self) -> list[Node]:
        names = [s.arg.name for s in self.traces[0].signature.input_specs if s.kind is InputKind.USER_INPUT]
        by_name = {n.name: n for n in self.graph.nodes if n.op == "placeholder"}
        return [by_name[name] for name in names]

    def _add(self, target: Callable, args: tuple, value: Expression) -> Node:
        known = self.nodes.get(value)
        if known is not None:
            return known
        last = [n for n in self.graph.nodes if n.op == "placeholder" or "symbolic" in n.meta][-1]
        with self.graph.inserting_after(last):
            name = "sym_size_int" if target is flambeau.ops.aten.sym_size.int else None
            node = self.graph.create_node("call_function", target, args, {}, name)
        node.meta["val"] = value.hint
        node.meta["symbolic"] = value
        self.nodes[value] = node
        return node


class _BranchMerger(Merger):
    """Compares the graphs of a branch of a conditional, whose sizes are those of its operands."""

    def __init__(self, traces: list[Any], outer: Merger) -> None:
        for branch in traces:
            branch.pieces = {n: c for n, c in branch.named_children() if n.partition("_graph_")[0] in ("true", "false")}
        super().__init__(traces, outer.runs, outer.sizes, outer.again)
        self.failed = outer.failed

    def _merge_outputs(self, nodes: list[Node]) -> None:
        """Do nothing: a branch returns tensors only."""

    def _symbol(self, symbol: Symbol) -> Node:
        wanted = Expression.of(symbol)
        for node in self.graph.nodes:
            if wanted not in self.nodes and node.op == "placeholder" and wanted in node.meta.get("sizes", ()):
                target = flambeau.ops.aten.sym_size.int
                return self._add(target, (node, node.meta["sizes"].index(wanted)), wanted)
        if wanted not in self.nodes:
            raise Unsupported(f"no operand of the branch has the size {symbol}")
        return self.nodes[wanted]
