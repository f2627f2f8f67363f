"""Calls: arguments, and the functions whose meaning the compiler knows (`isinstance`, `annotate`, `zip`, `fork`...)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import signatures as notes
from . import types as T
from .frames import Condition, Refinements
from .ir import Value
from .matching import Named
from .named_values import ClassValue, IterableTree, MagicMethod, PythonModule, RangeValue, SliceValue
from .source import Range, error
from .type_joins import unify_all, unshaped
from .values import BuiltinFunction, SimpleValue, SpecialForm, Sugared, SugaredTuple


class Calls:
    """The part of the emitter that compiles calls."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def call(self: Any, node: ast.Call, wanted: T.Type | None) -> Sugared:
        place = self.at(node)
        callee = self.sugared(node.func)
        if isinstance(callee, SpecialForm):
            method = getattr(self, f"form_{callee.form}")
            return method(node, place, wanted, callee)
        args = self.positional(node.args)
        kwargs = self.by_name(node.keywords)
        return callee.call(place, self, args, kwargs)

    def positional(self: Any, nodes: Sequence[ast.expr]) -> list[Named]:
        args = []
        for node in nodes:
            place = self.at(node)
            if isinstance(node, ast.Starred):
                items = self.sugared(node.value).as_tuple(place, self)
                args += [Named(item.as_value(place, self), place) for item in items]
            else:
                args.append(Named(self.expression(node), place))
        return args

    def by_name(self: Any, keywords: Sequence[ast.keyword]) -> list[Named]:
        named = []
        for keyword in keywords:
            place = self.at(keyword.value)
            if keyword.arg is None:
                raise error(place, "keyword-arg expansion is not supported", notes.NotSupportedError)
            named.append(Named(self.expression(keyword.value), place, keyword.arg))
        return named

    # -- conditions ------------------------------------------------------------------------------------------------------
    def condition_of_call(self: Any, node: ast.Call) -> Condition | None:
        """Return the condition of a call that refines types or is known at compile time; None for all others."""
        if not isinstance(node.func, (ast.Name, ast.Attribute)):
            return None
        try:
            callee = self._peek(node.func)
        except RuntimeError:
            return None
        place = self.at(node)
        if not isinstance(callee, SpecialForm):
            return None
        if callee.form == "isinstance":
            return self._isinstance(node, place)
        if callee.form == "hasattr":
            if len(node.args) != 2 or not isinstance(node.args[1], ast.Constant):
                raise error(place, "hasattr's second argument must be a string literal")
            found = self.sugared(node.args[0]).has_attr(place, self, node.args[1].value)
            return Condition(self.constant(found, T.BOOL, place), Refinements(), found)
        if callee.form in ("is_scripting", "is_tracing"):
            truth = callee.form == "is_scripting"
            return Condition(self.constant(truth, T.BOOL, place), Refinements(), truth)
        return None

    def _peek(self: Any, node: ast.expr) -> Sugared | None:
        """Return the Python object behind a dotted name outside the program, without changing the graph."""
        if isinstance(node, ast.Name):
            assert self.frame is not None
            holder = self.frame.holder(node.id)
            if holder is not None:
                return holder.sugared.get(node.id)
            return self.resolver.name(self, self.at(node), node.id)
        if isinstance(node, ast.Attribute):
            owner = self._peek(node.value)
            return owner.attr(self.at(node), self, node.attr) if isinstance(owner, PythonModule) else None
        return None

    def _isinstance(self: Any, node: ast.Call, place: Range) -> Condition:
        if len(node.args) != 2:
            raise error(place, "isinstance expects two arguments")
        thing = self.sugared(node.args[0])
        value = thing.as_value(place, self) if isinstance(thing, (SimpleValue, SugaredTuple)) else None
        if value is None:
            return self._isinstance_of_object(node, place, thing)
        wanted = self._checked_types(node.args[1])
        actual = unshaped(value.type)
        name = node.args[0].id if isinstance(node.args[0], ast.Name) else None
        members = (
            list(actual.members)
            if isinstance(actual, T.UnionType)
            else [actual.element, T.NONE]
            if isinstance(actual, T.OptionalType)
            else [actual]
        )
        if actual is T.ANY:
            refined = Refinements({name: T.union_of(wanted)}, {}) if name else Refinements()
            return Condition(self._isinstance_node(place, value, wanted), refined, None)
        yes = [t for t in members if any(T.is_subtype(t, w) for w in wanted)]
        no = [t for t in members if t not in yes]
        if not no:
            return Condition(
                self.constant(True, T.BOOL, place),
                Refinements({name: actual} if name and len(members) > 1 else {}, {}),
                True,
            )
        if not yes:
            return Condition(self.constant(False, T.BOOL, place), Refinements(), False)
        refined = Refinements({name: T.union_of(yes)}, {name: T.union_of(no)}) if name else Refinements()
        return Condition(self._isinstance_node(place, value, wanted), refined, None)

    def _isinstance_of_object(self: Any, node: ast.Call, place: Range, thing: Sugared) -> Condition:
        """Evaluate `isinstance` at compile time for modules and other objects that are not values of the graph."""
        python = self.resolver.python_object(self, node.args[1])
        instance = getattr(thing, "thing", None) or getattr(thing, "module", None)
        truth = isinstance(instance, python) if python is not None and instance is not None else False
        return Condition(self.constant(truth, T.BOOL, place), Refinements(), truth)

    def _isinstance_node(self: Any, place: Range, value: Value, wanted: Sequence[T.Type]) -> Value:
        node = self.graph.create("prim::isinstance", [value], 1, place)
        node.attributes["types"] = list(wanted)
        node.outputs_[0].type = T.BOOL
        return self.graph.insert(node).outputs_[0]

    def _checked_types(self: Any, node: ast.expr) -> list[T.Type]:
        if isinstance(node, ast.Tuple):
            return [t for part in node.elts for t in self._checked_types(part)]
        if isinstance(node, ast.Name) and node.id in ("list", "tuple") and self.frame.holder(node.id) is None:
            return [T.ANY_LIST if node.id == "list" else T.ANY_TUPLE]
        return [notes.type_of(self, node)]

    # -- special forms ---------------------------------------------------------------------------------------------------
    def form_isinstance(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        return SimpleValue(self._isinstance(node, place).value)

    def form_hasattr(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        condition = self.condition_of_call(node)
        return SimpleValue(condition.value)

    def form_len(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if len(node.args) != 1:
            raise error(place, f"len() takes exactly one argument ({len(node.args)} given)")
        thing = self.sugared(node.args[0])
        if not isinstance(thing, (SimpleValue, SugaredTuple)):
            return SimpleValue(thing.length(place, self))
        value = thing.as_value(place, self)
        if isinstance(value.type, T.TupleType):
            return SimpleValue(self.constant(len(value.type.elements), T.INT, place))
        return MagicMethod("__len__", BuiltinFunction("aten::len")).call(place, self, [Named(value, place)], [])

    def form___getitem__(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """`tensor.__getitem__(index)`."""
        if len(node.args) != 1 or node.keywords:
            raise error(place, f"__getitem__ expected exactly 1 argument, got {len(node.args) + len(node.keywords)}")
        return SimpleValue(self.tensor_item(place, form.owner, node.args))

    def form_check(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """`torch._check(cond, message)`."""
        names, given = ("cond", "message"), [*node.args, *(k.value for k in node.keywords)]
        if not 1 <= len(given) <= 2:
            raise error(place, f"torch._check() expects 1 or 2 arguments, got {len(given)}")
        parts: dict[str, ast.expr] = dict(zip(names, node.args))
        for keyword in node.keywords:
            if keyword.arg not in names:
                raise error(place, f"torch._check() got an unexpected keyword argument '{keyword.arg}'")
            if keyword.arg in parts:
                raise error(place, f"torch._check() got multiple values for argument '{keyword.arg}'")
            parts[keyword.arg] = keyword.value
        if "cond" not in parts:
            raise error(place, "torch._check() missing required argument 'cond'")
        condition = self.condition(parts["cond"])
        text = "Expected cond to be True, but got False"
        message = self.expression(parts["message"]) if "message" in parts else self.constant(text, T.STRING, place)
        self.branches(
            place, condition, lambda: None, lambda: self.raise_exception(place, message, "builtins.RuntimeError")
        )
        return SimpleValue(self.none(place))

    def form_assert_(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """`torch._assert(condition, message)`."""
        condition = self.condition(node.args[0])
        message = self.expression(node.args[1])
        self.branches(place, condition, lambda: None, lambda: self.raise_exception(place, message, ""))
        return SimpleValue(self.none(place))

    form_is_scripting = form_is_tracing = form_hasattr

    def form_print(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if node.keywords:
            raise error(place, "print doesn't accept any keyword arguments")
        values = [a.value for a in self.positional(node.args)]
        self.graph.insert(self.graph.create("prim::Print", values, 0, place))
        return SimpleValue(self.none(place))

    def form_annotate(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if len(node.args) != 2:
            raise error(place, f"expected exactly two arguments to annotate but found {len(node.args)}")
        kind = notes.type_of(self, node.args[0])
        value = self.convert(place, kind, self.expression(node.args[1], kind))
        if not T.is_subtype(value.type, kind):
            raise error(place, f"expected an expression of type {kind.repr_str()} but found {value.type.repr_str()}")
        if (
            isinstance(kind, (T.OptionalType, T.UnionType))
            and value.type != kind
            or (kind is T.ANY and value.type is not T.ANY)
        ):
            value = self.graph.op("prim::unchecked_cast", [value], kind, place)
        return SimpleValue(value)

    def form_unchecked_cast(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        kind = notes.type_of(self, node.args[0])
        value = self.expression(node.args[1])
        return SimpleValue(self.graph.op("prim::unchecked_cast", [value], kind, place))

    def form_uninitialized(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        return SimpleValue(self.graph.op("prim::Uninitialized", [], notes.type_of(self, node.args[0]), place))

    def form_rethrow_optional(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """`_unwrap_optional(x)`."""
        args = self.positional(node.args)
        return SimpleValue(self.call_operator(place, "aten::_unwrap_optional", args, []))

    def form_getattr(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if len(node.args) not in (2, 3):
            raise error(place, f"getattr expected 2 or 3 arguments, got {len(node.args)}")
        owner, name = self.sugared(node.args[0]), node.args[1]
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            known, text = self.known(self.expression(name))
            if not known:
                raise error(place, "getattr's second argument must be a string literal")
        else:
            text = name.value
        if len(node.args) == 3 and not owner.has_attr(place, self, text):  # of a tuple that is no NamedTuple, an error
            return self.sugared(node.args[2])
        return owner.attr(place, self, text)

    def form_range(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        values = [a.value for a in self.positional(node.args)]
        values = [self.convert(place, T.INT, v) for v in values]
        return RangeValue(place, self, values)

    def form_zip(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if node.keywords:
            raise error(place, "zip doesn't accept any keyword arguments")
        if not node.args:
            raise error(place, "zip expected at least 1 arguments, got 0")
        return self._tree(place, [self.sugared(a).iterate(place, self) for a in node.args])

    def form_enumerate(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        start = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "start"), None)
        if not 1 <= len(node.args) <= 2:
            bound = "at most 2" if node.args else "at least 1"
            raise error(place, f"enumerate expected {bound} arguments, got {len(node.args)}")
        first = self.constant(0, T.INT, place) if start is None else self.expression(start)
        counter = RangeValue(place, self, [first, self.constant(2**63 - 1, T.INT, place)], static=-1)
        return self._tree(place, [counter, self.sugared(node.args[0]).iterate(place, self)])

    def _tree(self: Any, place: Range, children: list[Sugared]) -> Sugared:
        unrolled = any(c.unrolled for c in children)
        if not unrolled:
            return IterableTree(children, False)
        lengths = [c.static_length() for c in children]
        known = [n for n in lengths if n is not None and n >= 0]
        if any(n is None for n in lengths):
            raise error(
                place,
                "Can not iterate over a module list or tuple with a value that does not have a statically determinable length\n",
            )
        rows = []
        for number in range(min(known)):
            index = self.constant(number, T.INT, place)
            rows.append(SugaredTuple([c.item(place, self, index) for c in children]))
        return SugaredTuple(rows)

    def form_tuple(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if len(node.args) > 1:
            raise error(place, f"tuple expected at most 1 argument, got {len(node.args)}")
        if not node.args:
            return SimpleValue(self.graph.tuple_of([], place))
        thing = self.sugared(node.args[0])
        if isinstance(thing, SimpleValue) and isinstance(thing.value.type, T.ListType):
            raise error(place, "cannot statically infer the expected size of a list in this context")
        return SimpleValue(thing.iterate(place, self).as_tuple_value(place, self).as_value(place, self))

    def form_list(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if not node.args:
            hint = wanted if isinstance(wanted, T.ListType) else T.ListType(T.TENSOR)
            return SimpleValue(self.graph.list_of(hint.element, [], place))
        thing = self.sugared(node.args[0])
        if isinstance(thing, SimpleValue) and (
            isinstance(thing.value.type, T.ListType) or thing.value.type is T.STRING
        ):
            return SimpleValue(self.builtin(place, "aten::list", [thing.value]))
        iterable = thing.iterate(place, self)
        if iterable.unrolled:
            values = [i.as_value(place, self) for i in iterable.as_tuple(place, self)]
            joined = unify_all([unshaped(v.type) for v in values]) if values else T.TENSOR
            if joined is None:
                raise error(place, "the elements of a list have no common type")
            return SimpleValue(self.graph.list_of(joined, values, place))
        if isinstance(iterable, SimpleValue) and isinstance(iterable.value.type, T.ListType):
            return iterable
        made = self.graph.list_of(T.TENSOR, [], place)
        item = self.fresh("item")

        def body() -> None:
            found = self.find(item)
            value = found.as_value(place, self)
            made.type = T.ListType(unshaped(value.type))
            self.builtin(place, "aten::append", [made, value])

        self.loop_over(place, item, iterable, body)
        return SimpleValue(made)

    def loop_over(self: Any, place: Range, name: str, iterable: Sugared, body: Any) -> None:
        target = ast.Name(name, ast.Store())
        target.lineno, target.col_offset = place.line + 1, place.column
        target.end_lineno, target.end_col_offset = place.end + 1, place.end_column
        self.for_each(place, target, iterable, body)

    def form_dict(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        hint = wanted if isinstance(wanted, T.DictType) else None
        if len(node.args) > 1:
            raise error(place, f"dict expected at most 1 argument, got {len(node.args)}")
        pairs = [(self.constant(k.arg, T.STRING, place), self.expression(k.value)) for k in node.keywords]
        if not node.args:
            values = unify_all([v.type for _, v in pairs], True) or T.TENSOR
            return SimpleValue(self.graph.dict_of(hint or T.DictType(T.STRING, values), pairs, place))
        made = self._dict_of(place, node.args[0], hint)
        for key, value in pairs:
            self.add_pair(place, made, made.type, key, value)
        return SimpleValue(made)

    def _dict_of(self: Any, place: Range, node: ast.expr, hint: T.DictType | None) -> Value:
        """Emit a new dictionary with the entries of another one or with the pairs of an iterable."""
        if isinstance(node, (ast.Dict, ast.DictComp)):
            return self.expression(node, hint)
        if isinstance(node, (ast.List, ast.Tuple)) and not node.elts:
            return self.graph.dict_of(hint or T.DictType(T.STRING, T.TENSOR), [], place)
        thing = self.sugared(node)
        if isinstance(thing, SimpleValue) and isinstance(thing.value.type, (T.DictType, T.ListType)):
            made = self.builtin(place, "aten::dict", [thing.value])
            if hint is not None:
                self.check_pair(place, hint, made.type.key, made.type.value)
            return made
        made = self.graph.dict_of(hint or T.DictType(T.STRING, T.TENSOR), [], place)
        pair = self.fresh("pair")

        def body() -> None:
            key, value = (part.as_value(place, self) for part in self.find(pair).as_tuple(place, self, 2))
            self.add_pair(place, made, hint, key, value)

        self.loop_over(place, pair, thing.iterate(place, self), body)
        return made

    def form_reversed(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        thing = self.sugared(node.args[0]).iterate(place, self)
        if thing.unrolled:
            return SugaredTuple(list(reversed(thing.as_tuple(place, self))))
        value = thing.as_value(place, self)
        step = self.constant(-1, T.INT, place)
        none = self.none(place)
        return SimpleValue(self.builtin(place, "aten::slice", [value, none, none, step]))

    def form_tolist(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if wanted is None:
            raise error(place, "Expected type hint for result of tolist()")
        depth, element = 0, wanted
        while isinstance(element, T.ListType):
            depth, element = depth + 1, element.element
        if element not in (T.INT, T.FLOAT, T.BOOL) and str(element) != "complex":
            raise error(
                place,
                f"{element.repr_str()} is not one of the supported element types for tolist: int, float, complex, bool",
            )
        kinds = {T.INT: 0, T.FLOAT: 1, T.BOOL: 2}
        inputs = [form.owner, self.constant(depth, T.INT, place), self.constant(kinds.get(element, 3), T.INT, place)]
        return SimpleValue(self.graph.op("prim::tolist", inputs, wanted, place))

    def form___new__(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """`C.__new__(C)`, as archives write the creation of an object."""
        owner = self.sugared(node.args[0])
        if not isinstance(owner, ClassValue):
            raise error(place, f"Expected class value when creating a new object, but got {owner.kind}")
        return SimpleValue(self.graph.op("prim::CreateObject", [], owner.type, place))

    def form_super(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        found = self.resolver.parent_of(self, place, node)
        if found is None:
            raise error(place, "super() is only supported inside methods of modules")
        return found

    def form_fork(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """`torch.jit.fork(f, x)`: a node whose block calls f."""
        callee = self.sugared(node.args[0])
        args, kwargs = self.positional(node.args[1:]), self.by_name(node.keywords)
        made = self.graph.insert(self.graph.create("prim::fork", [], 1, place))
        block = made.add_block()
        with self.graph.at(block):
            self.push(block)
            out = callee.call(place, self, args, kwargs).as_value(place, self)
            self.pop()
            block.add_output(out)
        made.outputs_[0].type = T.FutureType(unshaped(out.type))
        return SimpleValue(made.outputs_[0])

    def form_noop(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """Emit None for a function that has no effect in compiled code."""
        return SimpleValue(self.none(place))

    def form_false(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """Emit False for a query whose answer in compiled code is always no."""
        return SimpleValue(self.constant(False, T.BOOL, place))

    def form_operator(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """Emit the operator of the form's own name."""
        return SimpleValue(self.call_operator(place, f"aten::{form.form}", self.positional(node.args), []))

    form_isfinite = form_format = form_wait = form_operator

    def form_slice(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        if node.keywords:
            raise error(place, "Slice does not accept any keyword arguments")
        if not 1 <= len(node.args) <= 3:
            raise error(
                place,
                f"slice expected {'at least 1 argument, got 0' if not node.args else f'at most 3 arguments, got {len(node.args)}'}",
            )
        values = [a.value for a in self.positional(node.args)]
        return SliceValue([None, *values] if len(values) == 1 else values)

    def form_new_device(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """`torch.device("cuda", 0)`, `torch.device(type="cpu")`."""
        given = [*self.positional(node.args), *self.by_name(node.keywords)]
        if len(given) == 1 and given[0].name in (None, "type", "device"):
            given = [Named(given[0].value, place)]
        named = [g for g in given if g.name is not None]
        return SimpleValue(self.call_operator(place, "aten::device", [g for g in given if g.name is None], named))

    def form_no_grad(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        return SpecialForm("no_grad")

    def form_unrecorded(self: Any, node: ast.Call, place: Range, wanted: Any, form: SpecialForm) -> Sugared:
        """Compile `unrecorded(function, x)` as the call inside `no_grad`."""
        called = ast.copy_location(ast.Call(node.args[0], node.args[1:], []), node)
        off = self.fresh("no_grad")
        self.frame.sugared[off] = SpecialForm("no_grad")
        manager = ast.copy_location(ast.Name(off, ast.Load()), node)
        body = ast.copy_location(ast.Expr(called), node)
        self.statements([ast.copy_location(ast.With([ast.withitem(manager)], [body]), node)])
        return SimpleValue(self.none(place))

    def context_manager(self: Any, node: ast.expr) -> Value:
        """Make the context manager object of a with statement."""
        thing = self.sugared(node)
        if isinstance(thing, SpecialForm) and thing.form == "no_grad":
            found = self.resolver.no_grad_class(self)
            return found.call(self.at(node), self, [], []).as_value(self.at(node), self)
        return thing.as_value(self.at(node), self)
