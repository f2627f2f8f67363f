"""From variables to values: every prim::Load becomes the value last stored, and break, continue, return become plain control flow.

`convert` first replaces variables (a block that changes a variable outputs the new value), then removes the exits: code after an `if` that
may have exited is moved into the branch that has not, or guarded by a flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .ir import Block, Graph, Node, Value, copy_node
from .ir_values import constant_of
from .type_joins import unify, unshaped
from .types import BOOL, INT, Type
from .variables import Variables

INT_MAX = 9223372036854775807
_EXIT_KINDS = (
    "prim::ReturnStmt", "prim::BreakStmt", "prim::ContinueStmt", "prim::RaiseException", "prim::LoopContinuation",
)  # fmt: skip


def convert(graph: Graph) -> None:
    _Variables(graph).block(graph, Variables())
    _Exits(graph, "prim::LoopContinuation").run()
    _Exits(graph, "prim::ReturnStmt").run()
    _merge_ifs(graph)
    _normalise_loops(graph)


def _merge_ifs(block: Block) -> None:
    """Merge an if into the if before it, where its condition only says which branch that one took."""
    for node in list(block.nodes_):
        for inner in node.blocks_:
            _merge_ifs(inner)
    first = block.nodes_.first
    while first is not None and first.following is not None:
        second = first.following
        if first.kind_ == second.kind_ == "prim::If" and second.inputs_[0] in first.outputs_:
            index = first.outputs_.index(second.inputs_[0])
            ways = [constant_of(inner.outputs_[index]) for inner in first.blocks_]
            if all(known for known, _ in ways):
                _merge(first, second, [truth for _, truth in ways])
                continue
        first = second


def _merge(first: Node, second: Node, ways: Sequence[bool]) -> None:
    outs = [first.add_output(v.type) for v in second.outputs_]
    for inner, way in zip(first.blocks_, ways):
        known = dict(zip(first.outputs_, inner.outputs_))
        chosen = second.blocks_[0 if way else 1]
        for node in chosen.nodes_:
            inner.append(copy_node(node, inner.graph, known))
        for value in chosen.outputs_:
            inner.add_output(known.get(value, value))
    for out, old in zip(outs, second.outputs_):
        name = old.name if old.has_name() else ""
        old.replace_by(out)
        old.set_name("")
        if name:
            out.set_name(name)
    second.destroy()


def _normalise_loops(block: Block) -> None:
    """Convert loops with both a limit and a condition to loops with a condition only, which count by themselves."""
    graph = block.graph
    for node in list(block.nodes_):
        for inner in node.blocks_:
            _normalise_loops(inner)
        if node.kind_ != "prim::Loop":
            continue
        body = node.blocks_[0]
        limited = constant_of(node.inputs_[0]) != (True, INT_MAX)
        free = constant_of(node.inputs_[1]) == (True, True) and constant_of(body.outputs_[0]) == (True, True)
        if limited and not free:
            _count_by_hand(graph, node, body)


def _count_by_hand(graph: Graph, node: Node, body: Block) -> None:
    limit, start = node.inputs_[:2]
    with graph.at(node):
        node.replace_input(0, graph.constant(INT_MAX, INT, node.range))
        zero = graph.constant(0, INT, node.range)
        some = graph.op("aten::gt", [limit, zero], BOOL, node.range)
        node.replace_input(1, some if constant_of(start) == (True, True) else _emit_and(graph, some, start))
        node.add_input(zero)
    before = body.inputs_[0]
    counter = body.add_input("", INT)
    before.replace_by(counter)
    if before.has_name():
        counter.set_name(before.name)
        before.set_name("")
    with graph.at(body):
        one = graph.constant(1, INT, node.range)
        after = graph.op("aten::add", [counter, one], INT, node.range)
        less = graph.op("aten::lt", [after, limit], BOOL, node.range)
        body.ret.replace_input(0, _emit_and(graph, less, body.outputs_[0]))
    body.add_output(after)
    node.add_output(INT)


def _emit_and(graph: Graph, a: Value, b: Value) -> Value:
    return graph.op("aten::__and__", [a, b], BOOL)


# -- variables --------------------------------------------------------------------------------------------------------------


@dataclass
class _Loop:
    """The loop around the code being converted: the variables it carries, and the block that computes its condition."""

    names: list[str]
    checking: Block


def leaves(block: Block) -> bool:
    """Return whether control never reaches the end of a block."""
    for node in block.nodes_:
        if node.kind_ in _EXIT_KINDS:
            return True
        if node.kind_ == "prim::If" and all(map(leaves, node.blocks_)):
            return True
    return False


def stored(block: Block) -> set[str]:
    names: set[str] = set()
    for node in block.nodes_:
        if node.kind_ == "prim::Store":
            names.add(node.attributes["name"])
        for inner in node.blocks_:
            names |= stored(inner)
    return names


class _Variables:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.declared: dict[tuple[Value, str], Type] = {}

    def block(self, block: Block, known: Variables, loop: _Loop | None = None) -> Variables:
        """Replace the loads of a block by values; return the variables at its end."""
        for node in list(block.nodes_):
            kind = node.kind_
            if kind == "prim::Store":
                self.store(known, node)
            elif kind == "prim::Load":
                node.outputs_[0].replace_by(known[node.attributes["name"]])
                node.destroy()
            elif kind == "prim::If":
                self.branch(node, known, loop)
            elif kind == "prim::Loop":
                self.loop(node, known)
            elif kind in ("prim::BreakStmt", "prim::ContinueStmt"):
                assert loop is not None
                with self.graph.at(node):
                    self.continuation(known, loop, kind == "prim::ContinueStmt", node)
                node.destroy()
            else:
                for inner in node.blocks_:
                    self.block(inner, known.inner(), loop)
        return known

    def store(self, known: Variables, node: Node) -> None:
        """The variable holds another value now; what it may hold (a loop could put that there) is its declared type."""
        name, value = node.attributes["name"], node.inputs_[0]
        known[name] = value
        self.declared[value, name] = node.attributes["type"]
        node.destroy()

    def type_of(self, name: str, value: Value) -> Type:
        return unshaped(self.declared.get((value, name), value.type))

    def branch(self, node: Node, known: Variables, loop: _Loop | None) -> None:
        ends = [self.block(inner, known.inner(), loop) for inner in node.blocks_]
        gone = [leaves(inner) for inner in node.blocks_]
        if all(gone):
            return
        touched = {name for end in ends for name in end.changed}
        changed = sorted(name for name in touched if any(end.get(name) is not known.get(name) for end in ends))
        for name in changed:
            if any(name not in end and not left for end, left in zip(ends, gone)):
                known.remove(name)
                continue
            there = [end[name] for end, left in zip(ends, gone) if not left]
            types = [self.type_of(name, value) for value in there]
            kind: Type | None = types[0] if len(there) == 1 else unify(types[0], types[1])
            if kind is None:
                known.remove(name)
                continue
            for inner, end, left in zip(node.blocks_, ends, gone):
                inner.add_output(self.nothing(inner, kind) if left else end[name])
            out = node.add_output(unshaped(kind))
            if not name.startswith(("$", "_")):
                out.set_name(name)
            known[name] = out

    def nothing(self, block: Block, kind: Type) -> Value:
        with self.graph.at(block):
            return self.graph.op("prim::Uninitialized", [], kind)

    def loop(self, node: Node, known: Variables) -> None:
        body, checking = node.blocks_
        names = sorted(n for n in stored(body) if n in known)
        loop = _Loop(names, checking)
        with self.graph.at(node):
            start = self.condition(checking, known)
        node.add_input(start)
        inside = known.inner()
        for name in names:
            before = known[name]
            node.add_input(before)
            value = body.add_input("", self.type_of(name, before))
            if not name.startswith("$"):
                value.set_name(name)
            inside[name] = value
        inside = self.block(body, inside, loop)
        if not leaves(body):
            with self.graph.at(body):
                self.continuation(inside, loop, True, node)
        node.blocks_.pop()
        checking.destroy()
        for name in names:
            out = node.add_output(self.type_of(name, known[name]))
            if not name.startswith("$"):
                out.set_name(name)
            known[name] = out

    def condition(self, checking: Block, known: Variables) -> Value:
        """Insert a copy of the loop's condition, computed from the current values of the variables."""
        seen: dict[Value, Value] = {}
        copy = [self.graph.insert(copy_node(n, self.graph, _Following(seen))) for n in checking.nodes_]
        result = seen.get(checking.outputs_[0], checking.outputs_[0])
        holder = self.graph.insert(self.graph.create("prim::Keep", [result], 0))
        here = known.inner()
        for made in copy:
            self._convert_node(made, here)
        result = holder.inputs_[0]
        holder.destroy()
        return result

    def _convert_node(self, node: Node, known: Variables) -> None:
        if node.kind_ == "prim::Load":
            node.outputs_[0].replace_by(known[node.attributes["name"]])
            node.destroy()
        elif node.kind_ == "prim::Store":
            self.store(known, node)
        elif node.kind_ == "prim::If":
            self.branch(node, known, None)
        elif node.kind_ == "prim::Loop":
            self.loop(node, known)

    def continuation(self, known: Variables, loop: _Loop, again: bool, node: Node) -> None:
        go_on = self.condition(loop.checking, known) if again else self.graph.constant(False, BOOL, node.range)
        values = [known[name] for name in loop.names]
        made = self.graph.create("prim::LoopContinuation", [go_on, *values], 0, node.range)
        self.graph.insert(made)


class _Following(dict):
    """A map from old values to new ones that records its additions."""

    def __init__(self, seen: dict[Value, Value]):
        self.seen = seen

    def get(self, key: Value, default: Value | None = None) -> Value | None:  # type: ignore[override]
        return self.seen.get(key, default)

    def __setitem__(self, key: Value, value: Value) -> None:
        self.seen[key] = value


# -- exits ------------------------------------------------------------------------------------------------------------------

STAYS, MAY, GOES, THROWS = "stays", "may", "goes", "throws"


@dataclass
class _Outcome:
    status: str
    flag: Value | None = None  # of MAY: whether it has gone
    values: Sequence[Value] = ()


class _Exits:
    """Removes one kind of exit: of loops (LoopContinuation) or of the function (ReturnStmt)."""

    def __init__(self, graph: Graph, kind: str):
        self.graph, self.kind = graph, kind
        self.empties: dict[Type, Value] = {}

    def run(self) -> None:
        if self.kind == "prim::ReturnStmt":
            kinds = [v.type for v in self.graph.outputs_]  # what stands there so far is only a placeholder
            self.graph.ret.drop_inputs()
            self.finish(self.graph, self.block(self.graph), kinds)
        else:
            self.loops(self.graph)

    def loops(self, block: Block) -> None:
        """Handle the loops inside a block, inner ones first."""
        for node in list(block.nodes_):
            for inner in node.blocks_:
                self.loops(inner)
            if node.kind_ == "prim::Loop":
                body = node.blocks_[0]
                kinds = [BOOL, *(v.type for v in body.inputs_[1:])]
                outcome = self.block(body)
                self.finish(body, outcome, kinds)

    def finish(self, block: Block, outcome: _Outcome, kinds: Sequence[Type]) -> None:
        values = outcome.values or self.nothing(block, kinds)  # a body that always throws or returns has none
        for value in values:
            block.add_output(value)

    def block(self, block: Block) -> _Outcome:
        for node in list(block.nodes_):
            if node.kind_ == "prim::RaiseException":
                self.cut(block, block.nodes_.index(node) + 1)
                return _Outcome(THROWS)
            if node.kind_ == self.kind:
                values = list(node.inputs_)
                self.cut(block, block.nodes_.index(node))
                return _Outcome(GOES, None, values)
            if node.kind_ == "prim::If":
                outcome = self.branch(block, node)
            elif node.kind_ == "prim::Loop" and self.kind == "prim::ReturnStmt":
                outcome = self.through_loop(node)
            else:
                continue
            if outcome.status == STAYS:
                continue
            if outcome.status in (GOES, THROWS):
                self.cut(block, block.nodes_.index(node) + 1)
                return outcome
            return self.guard(block, node, outcome)
        return _Outcome(STAYS)

    def cut(self, block: Block, start: int) -> None:
        """Remove unreachable nodes. Outputs of the block that they produced become uninitialised values."""
        dead = block.nodes_[start:]
        made = {value for node in dead for value in node.outputs_}
        for index, value in enumerate(list(block.outputs_)):
            if value in made:
                block.ret.replace_input(index, self.empty(value.type))
        for node in reversed(dead):
            node.destroy()

    def nothing(self, block: Block, kinds: Sequence[Type]) -> list[Value]:
        return [self.empty(kind) for kind in kinds]

    def empty(self, kind: Type) -> Value:
        """Return an uninitialised value of a type, created once per type at the beginning of the graph."""
        if kind in self.empties:
            return self.empties[kind]
        made = self.graph.prepend(self.graph.create("prim::Uninitialized"))
        self.empties[kind] = made.outputs_[0].set_type(kind)
        return made.outputs_[0]

    def truth(self, block: Block, value: bool) -> Value:
        with self.graph.at(block):
            return self.graph.constant(value, BOOL)

    def branch(self, block: Block, node: Node) -> _Outcome:
        first, second = node.blocks_
        outcomes = [self.block(first), self.block(second)]
        statuses = [o.status for o in outcomes]
        if all(s == THROWS for s in statuses):
            return _Outcome(THROWS)
        if all(s in (STAYS, THROWS) for s in statuses):
            return _Outcome(STAYS)
        kinds = self._unify_types([o.values for o in outcomes if o.values])
        if all(s in (GOES, THROWS) for s in statuses):
            self.drop_outputs(node)
            return _Outcome(GOES, None, self.add_outputs(node, [o.values or None for o in outcomes], kinds))
        if GOES in statuses and STAYS in statuses:
            return self.move_rest(block, node, outcomes, kinds)
        flags = [self._flag(b, o) for b, o in zip(node.blocks_, outcomes)]
        flag = self.add_outputs(node, [[f] if f is not None else None for f in flags], [BOOL])[0]
        return _Outcome(MAY, flag, self.add_outputs(node, [o.values or None for o in outcomes], kinds))

    def _flag(self, block: Block, outcome: _Outcome) -> Value | None:
        if outcome.status == MAY:
            return outcome.flag
        return None if outcome.status == THROWS else self.truth(block, outcome.status == GOES)

    @staticmethod
    def _unify_types(groups: Sequence[Sequence[Value]]) -> list[Type]:
        kinds = [unshaped(v.type) for v in groups[0]]
        for group in groups[1:]:
            kinds = [unify(k, v.type, to_union=True) or k for k, v in zip(kinds, group)]
        return kinds

    def drop_outputs(self, node: Node) -> None:
        """Remove the outputs of an if that always exits, as they have no users."""
        for inner in node.blocks_:
            inner.ret.drop_inputs()
        for value in node.outputs_:
            if value.uses:
                value.replace_by(self.empty(value.type))
        while node.outputs_:
            node.erase_output(0)

    def add_outputs(self, node: Node, values: Sequence[Sequence[Value] | None], kinds: Sequence[Type]) -> list[Value]:
        """Add outputs to an `if` node: for each block the values to return, or None for uninitialised ones."""
        for inner, given in zip(node.blocks_, values):
            for value in given if given is not None else self.nothing(inner, kinds):
                inner.add_output(value)
        return [node.add_output(kind) for kind in kinds]

    def move_rest(self, block: Block, node: Node, outcomes: list[_Outcome], kinds: list[Type]) -> _Outcome:
        """Move the nodes after an if into the branch that continues, when the other one exits."""
        stays = [o.status for o in outcomes].index(STAYS)
        home = node.blocks_[stays]
        start = block.nodes_.index(node) + 1
        rest = block.nodes_[start:]
        # Inside the branch, what the if handed out is what that branch handed out.
        for out, value in zip(list(node.outputs_), list(home.outputs_)):
            out.replace_by(value)
        self.drop_outputs(node)
        for moved in rest:
            block.nodes_.remove(moved)
            home.append(moved)
        self._replace_outputs(block, node, stays)
        outcome = self.block(home)
        exits = [o.values for o in outcomes if o.status == GOES][0]
        values: list[Sequence[Value] | None] = [None, None]
        values[1 - stays] = exits
        values[stays] = outcome.values or None
        if outcome.values:
            kinds = self._unify_types([exits, outcome.values])
        if outcome.status in (GOES, THROWS):
            return _Outcome(GOES, None, self.add_outputs(node, values, kinds))
        flags: list[Sequence[Value] | None] = [None, None]
        flags[1 - stays] = [self.truth(node.blocks_[1 - stays], True)]
        flags[stays] = [outcome.flag if outcome.flag is not None else self.truth(home, False)]
        flag = self.add_outputs(node, flags, [BOOL])[0]
        handed = self.add_outputs(node, values, kinds)
        return _Outcome(MAY, flag, handed)

    def _is_inside(self, value: Value, node: Node) -> bool:
        place = value.node.owner
        while place is not None:
            if place in node.blocks_:
                return True
            place = place.owning_node.owner if place.owning_node is not None else None
        return False

    def _replace_outputs(self, block: Block, node: Node, stays: int) -> None:
        """Replace outputs of the block that are now computed inside the branch by new outputs of the if."""
        for index, value in enumerate(list(block.outputs_)):
            if self._is_inside(value, node):
                both: list[Sequence[Value] | None] = [None, None]
                both[stays] = [value]
                out = self.add_outputs(node, both, [unshaped(value.type)])[0]
                block.ret.replace_input(index, out)

    def guard(self, block: Block, node: Node, outcome: _Outcome) -> _Outcome:
        """Guard the nodes after `node` by an if on the flag, so that they run only if control has not exited."""
        start = block.nodes_.index(node) + 1
        if start == len(block.nodes_):
            return outcome
        assert outcome.flag is not None
        made = self.graph.create("prim::If", [outcome.flag], 0, node.range)
        made.add_block(), made.add_block()
        made.insert_after(node)
        gone, stays = _Outcome(GOES, None, list(outcome.values)), _Outcome(STAYS)
        kinds = [v.type for v in outcome.values]
        return self.move_rest(block, made, [gone, stays], kinds)

    def through_loop(self, node: Node) -> _Outcome:
        """Rewrite a return inside a loop: the loop carries a flag that it has happened, and the returned value."""
        body = node.blocks_[0]
        outcome = self.block(body)
        if outcome.status in (STAYS, THROWS):
            return _Outcome(STAYS)
        kinds = [unshaped(v.type) for v in outcome.values]
        with self.graph.at(node):
            start = [self.graph.constant(False, BOOL, node.range)]
            start += self.nothing(body, kinds)
        for value in start:
            node.add_input(value)
            body.add_input("", unshaped(value.type))
        flag = outcome.flag if outcome.status == MAY else self.truth(body, True)
        assert flag is not None
        with self.graph.at(body):
            again = self.graph.insert(self.graph.create("prim::If", [flag], 0, node.range))
            for go_on, inner in ((None, again.add_block()), (body.outputs_[0], again.add_block())):
                inner.add_output(self.truth(inner, False) if go_on is None else go_on)
            body.ret.replace_input(0, again.add_output(BOOL))
        for value in (flag, *outcome.values):
            body.add_output(value)
        outs = [node.add_output(t) for t in (BOOL, *kinds)]
        return _Outcome(MAY, outs[0], outs[1:])
