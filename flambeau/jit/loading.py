"""The source inside archives: classes and functions by their qualified names, parsed when they are first needed.

The text is parsed with `ast`, every node must be of a kind that TorchScript writes, and the compiler of `script` turns it into graphs.
"""

from __future__ import annotations

import ast
import enum
import os
from typing import Any

import flambeau as torch

from ..core.native_class import PREFIX
from ..core.tensor import Tensor
from ..nn.parameter import Parameter
from . import signatures as notes
from . import types as T
from .archive import DAMAGE, Archive, readable
from .archive_names import NUMBERS, ArchiveResolver
from .classes import native_named
from .emitter import Emitter
from .functions import Definition, Function
from .module import RecursiveScriptModule
from .naming import unique_name
from .object_pickle import Pickled, Tagged
from .objects import ScriptObject, make_tuple, to_script
from .source import Source
from .value_types import inferred

_KINDS = (
    ast.Module, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AnnAssign, ast.Expr, ast.If,
    ast.While, ast.For, ast.Pass, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Constant, ast.Subscript, ast.Tuple, ast.List,
    ast.Dict, ast.UnaryOp, ast.USub, ast.Load, ast.Store, ast.With, ast.withitem, ast.Slice, ast.Starred, ast.BinOp, ast.BitOr,
    ast.Compare, ast.BoolOp, ast.operator, ast.cmpop, ast.boolop, ast.Not, ast.UAdd, ast.Invert, ast.AugAssign, ast.IfExp,
    ast.Break, ast.Continue, ast.Assert, ast.Raise, ast.Delete, ast.Del,
)  # fmt: skip


def parse(text: str, filename: str) -> ast.Module:
    """Parse source text from an archive; raise if it holds syntax that TorchScript does not write."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if not isinstance(node, _KINDS):
            raise RuntimeError(
                f"corrupt archive: {filename} holds {type(node).__name__}, which TorchScript does not have"
            )
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.decorator_list:
            raise RuntimeError(f"corrupt archive: {filename} holds decorators, which TorchScript does not have")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isascii():
            try:  # bytes of UTF-8, one escape each
                node.value = node.value.encode("latin-1").decode()
            except (UnicodeEncodeError, UnicodeDecodeError):
                pass
    return tree


class Loader:
    """Reader of one TorchScript archive."""

    def __init__(self, archive: Archive):
        self.archive = archive
        self.files: dict[str, dict[str, Any]] = {}
        self.sources: dict[str, Source] = {}
        self.types: dict[str, Any] = {}
        self.functions: dict[str, Function] = {}
        self.resolver = ArchiveResolver(self)
        self.made: dict[int, Any] = {}
        self.constants: list[Any] = []

    def load(self) -> RecursiveScriptModule:
        constants = self.archive.unpickle("constants.pkl", "constants")
        if not isinstance(constants, tuple):
            raise RuntimeError("corrupt archive: constants.pkl holds no tuple")
        self.constants = [self._plain(c) for c in constants]
        thing = self.archive.unpickle("data.pkl", "data")
        if not isinstance(thing, Pickled):
            raise RuntimeError("corrupt archive: data.pkl holds no module")
        made = self.convert(thing, T.ANY)
        if not isinstance(made, RecursiveScriptModule):
            raise RuntimeError("corrupt archive: data.pkl holds no module")
        for kind in list(self.types.values()):
            if isinstance(kind, T.ClassType):
                for method in list(kind.methods.values()):
                    method.ensure()
                    method.definition = None  # long code is a large tree that is not needed again
        self.files.clear()
        return made

    # -- definitions -----------------------------------------------------------------------------------------------------
    def file(self, prefix: str) -> dict[str, Any]:
        if prefix not in self.files:
            text = self.archive.source(prefix)
            if text is None:
                self.files[prefix] = {}
            else:
                tree = parse(text, prefix)
                self.sources[prefix] = Source(text, f"code/{prefix.replace('.', '/')}.py")
                self.files[prefix] = {n.name: n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        return self.files[prefix]

    def find(self, name: str) -> Any:
        """Return the type or function of a qualified name, or None if the archive has none."""
        if name in self.types:
            return self.types[name]
        if name.startswith(PREFIX) and name.count(".") == PREFIX.count(".") + 1:
            self.types[name] = native_named(name)
            return self.types[name]
        if name in self.functions:
            return self.functions[name]
        prefix, _, last = name.rpartition(".")
        tree = self.file(prefix).get(last)
        if isinstance(tree, ast.FunctionDef):
            definition = Definition(tree, self.sources[prefix], self.resolver, self.defaults(tree))
            self.functions[name] = Function(unique_name(name), definition)
            return self.functions[name]
        if isinstance(tree, ast.ClassDef):
            return self.define_class(name, prefix, tree)
        return None

    def type(self, name: str) -> Any:
        found = self.find(name)
        if found is None or isinstance(found, Function):
            raise RuntimeError(f"Unknown type name '{name}' in the archive")
        return found

    def define_class(self, name: str, prefix: str, tree: ast.ClassDef) -> Any:
        bases = [b.id for b in tree.bases if isinstance(b, ast.Name)]
        reader = Emitter(self.resolver, self.sources[prefix])
        if "NamedTuple" in bases:
            return self._named_tuple(name, tree, reader)
        if "Enum" in bases:
            return self._enum(name, tree)
        if "Interface" in bases or "ModuleInterface" in bases:
            return self._interface(name, tree, reader, "ModuleInterface" in bases)
        made = T.ClassType(unique_name(name), is_module="Module" in bases)
        self.types[name] = made
        for node in tree.body:
            self._member(made, node, reader, prefix)
        return made

    def _named_tuple(self, name: str, tree: ast.ClassDef, reader: Emitter) -> T.TupleType:
        fields, kinds = [], []
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                fields.append(node.target.id)
                kinds.append(notes.type_of(reader, node.annotation))
        self.types[name] = made = T.TupleType(kinds, unique_name(name), fields)
        return made

    def _enum(self, name: str, tree: ast.ClassDef) -> T.EnumType:
        members = []
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                members.append((node.targets[0].id, self.literal(node.value)))
        made = enum.Enum(name.rpartition(".")[2], members)  # type: ignore[misc]
        kind = inferred(members[0][1]) if members else None
        self.types[name] = found = T.EnumType(unique_name(name), kind or T.ANY, made, members)
        return found

    def _interface(self, name: str, tree: ast.ClassDef, reader: Emitter, is_module: bool) -> T.InterfaceType:
        self.types[name] = made = T.InterfaceType(unique_name(name), is_module)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                made.methods[node.name] = notes.schema_of(reader, node, made, {})
        return made

    def _member(self, made: T.ClassType, node: ast.stmt, reader: Emitter, prefix: str) -> None:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is not None:
                made.constants[node.target.id] = self.literal(node.value)
            else:
                kind = notes.type_of(reader, node.annotation)
                made.attributes[node.target.id] = _packed_type(made.name, node.target.id, kind) or kind
        elif isinstance(node, ast.FunctionDef):
            definition = Definition(node, self.sources[prefix], self.resolver, self.defaults(node))
            made.methods[node.name] = Function(f"{made.name}.{node.name}", definition, made)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._listed(made, node.targets[0], node.value, reader)
        elif not isinstance(node, ast.Pass):
            raise RuntimeError(f"corrupt archive: the class {made.name} holds {type(node).__name__}")

    def _listed(self, made: T.ClassType, target: ast.expr, value: ast.expr, reader: Emitter) -> None:
        """Read `__parameters__ = [...]` or `__annotations__["0"] = T` in a class body."""
        if isinstance(target, ast.Subscript):
            name = self.literal(target.slice)
            if not isinstance(name, str):
                raise RuntimeError("corrupt archive: an attribute's name is no string")
            made.attributes[name] = notes.type_of(reader, value)
            return
        names = self.literal(value)
        if not isinstance(target, ast.Name) or not isinstance(names, list):
            raise RuntimeError(f"corrupt archive: the class {made.name} holds an assignment")
        if target.id == "__parameters__":
            made.parameters = set(names)
        elif target.id == "__buffers__":
            made.buffers = set(names)
        elif target.id in ("__forward_hooks__", "__forward_pre_hooks__"):
            made.hook_names[target.id] = names

    def defaults(self, tree: ast.FunctionDef) -> dict[str, Any]:
        positional = tree.args.args
        pairs = zip(positional[len(positional) - len(tree.args.defaults) :], tree.args.defaults)
        return {a.arg: self.literal(d) for a, d in pairs}

    def literal(self, node: ast.expr) -> Any:
        """Read a constant from source text."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.literal(node.operand)
        if isinstance(node, ast.Tuple):
            return tuple(self.literal(e) for e in node.elts)
        if isinstance(node, ast.List):
            return [self.literal(e) for e in node.elts]
        if isinstance(node, ast.Name) and node.id in NUMBERS:
            return NUMBERS[node.id]
        if isinstance(node, ast.Call):
            name = notes.dotted(node.func)
            if name == "annotate" and len(node.args) == 2:
                return self.literal(node.args[1])
            if name == "torch.device" and len(node.args) == 1:
                return torch.device(self.literal(node.args[0]))
            if name in ("float", "complex"):
                return {"float": float, "complex": complex}[name](*map(self.literal, node.args))
        if isinstance(node, ast.Attribute):
            name = notes.dotted(node) or ""
            if name.startswith("CONSTANTS.c"):
                return self.constant(name.partition(".")[2])
            owner = self.find(name.rpartition(".")[0])
            if isinstance(owner, T.EnumType):
                return owner.python_class[node.attr]
        raise RuntimeError(f"corrupt archive: {type(node).__name__} is no constant")

    def constant(self, name: str) -> Any:
        index = name.removeprefix("c")
        if not index.isdigit() or int(index) >= len(self.constants):
            raise RuntimeError(f"corrupt archive: there is no constant {name}")
        return self.constants[int(index)]

    # -- objects ---------------------------------------------------------------------------------------------------------
    def _plain(self, value: Any) -> Any:
        if isinstance(value, Tagged):
            return self._plain(value.value)
        if isinstance(value, list):
            return [self._plain(v) for v in value]
        if isinstance(value, tuple):
            return tuple(self._plain(v) for v in value)
        if isinstance(value, dict):
            return {k: self._plain(v) for k, v in value.items()}
        return self.convert(value, T.ANY) if isinstance(value, Pickled) else value

    def convert(self, value: Any, kind: T.Type) -> Any:
        """Convert a value from the pickle to a value of the type `kind`."""
        if isinstance(value, Tagged):
            return self._container(value.value, kind)
        if isinstance(value, (list, dict)):
            return self._container(value, kind)
        if isinstance(value, tuple):
            inner = _pick(kind, T.TupleType)
            kinds = inner.elements if inner is not None and len(inner.elements) == len(value) else [T.ANY] * len(value)
            items = [self.convert(v, t) for v, t in zip(value, kinds)]
            return make_tuple(inner, items) if inner is not None else tuple(items)
        if not isinstance(value, Pickled):
            return value if kind is T.ANY else to_script(value, kind)
        if id(value) in self.made:
            return self.made[id(value)]
        found = self.type(value.qualified)
        if isinstance(found, T.EnumType):
            return found.python_class(value.arguments[0])
        if not isinstance(found, T.ClassType):
            raise RuntimeError(f"corrupt archive: an object of {value.qualified}")
        return self._module(value, found) if found.is_module else self._object(value, found)

    def _container(self, value: Any, kind: T.Type) -> Any:
        if id(value) in self.made:
            return self.made[id(value)]
        made: Any = [] if isinstance(value, list) else {}
        self.made[id(value)] = made
        if isinstance(value, list):
            inner = _pick(kind, T.ListType)
            made.extend(self.convert(v, inner.element if inner is not None else T.ANY) for v in value)
        else:
            inner = _pick(kind, T.DictType)
            key, item = (inner.key, inner.value) if inner is not None else (T.ANY, T.ANY)
            made.update((self.convert(k, key), self.convert(v, item)) for k, v in value.items())
        return made

    def _object(self, value: Pickled, kind: T.ClassType) -> Any:
        native = kind.python_class
        made: Any = ScriptObject(kind) if native is None else native.__new__(native)
        self.made[id(value)] = made
        setter = kind.find_method("__setstate__")
        if setter is not None and "__getstate__" in kind.methods:
            setter.ensure()
            setter.run([made, self.convert(value.state, setter.schema.arguments[1].type)])
            return made
        self._read_into(value, kind, made.slots.__setitem__)
        return made

    def _read_into(self, value: Pickled, kind: T.ClassType, put: Any) -> None:
        if not isinstance(value.state, dict):
            raise RuntimeError(f"corrupt archive: an object of {kind.name} without state")
        for name, t in kind.attributes.items():
            if name not in value.state:
                raise RuntimeError(f"corrupt archive: an object of {kind.name} lacks its attribute {name}")
            put(name, self.convert(value.state[name], t))

    def _module(self, value: Pickled, kind: T.ClassType) -> RecursiveScriptModule:
        made = self.made[id(value)] = RecursiveScriptModule._make(kind)

        def put(name: str, held: Any) -> None:
            t = kind.attributes[name]
            if name in kind.parameters:
                made._parameters[name] = Parameter(held, held.requires_grad) if isinstance(held, Tensor) else held
            elif name in kind.buffers:
                made._buffers[name] = held
            elif isinstance(held, RecursiveScriptModule) or isinstance(t, T.ClassType) and t.is_module:
                made._modules[name] = held
            else:
                made.__dict__[name] = held

        setter = kind.methods.get("__setstate__") if "__getstate__" in kind.methods else None
        if setter is not None:
            setter.ensure()
            setter.run([made, self.convert(value.state, setter.schema.arguments[1].type)])
        else:
            self._read_into(value, kind, put)
        for table, target in (
            ("__forward_pre_hooks__", kind.forward_pre_hooks),
            ("__forward_hooks__", kind.forward_hooks),
        ):
            names = getattr(kind, "hook_names", {}).get(table, [])
            if names and not target:
                target.extend(kind.methods[n] for n in names)
        return made


def _packed_type(owner: str, name: str, kind: T.Type) -> T.Type | None:
    """Return the type of packed weights in old files, whose source declares them as tensors."""
    layer = owner.rpartition(".")[2]
    if name != "_packed_params" or kind is not T.TENSOR or not owner.startswith("__torch__.torch.nn."):
        return None
    word = "Linear" if layer.startswith("Linear") else f"Conv{layer[-2:]}" if layer.endswith(("2d", "3d")) else ""
    return native_named(f"{PREFIX}quantized.{word}PackedParamsBase") if word else None


def _pick(kind: T.Type, wanted: type) -> Any:
    if isinstance(kind, T.OptionalType):
        return _pick(kind.element, wanted)
    if isinstance(kind, T.UnionType):
        return next((m for m in kind.members if isinstance(m, wanted)), None)
    return kind if isinstance(kind, wanted) else None


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, _restore_shapes: bool = False) -> Any:  # fmt: skip
    """Read a module that `save` wrote, here or in PyTorch.

    >>> module = load("module.pt", map_location="cpu")
    """
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        if not os.path.exists(path):
            raise ValueError(f"The provided filename {path} does not exist")
        if os.path.isdir(path):
            raise ValueError(f"The provided filename {path} is a directory")
    if isinstance(map_location, str):
        map_location = torch.device(map_location)
    with readable(f) as file:
        try:
            archive = Archive(file, map_location)
            for name in _extra_files or {}:
                if archive.has(f"extra/{name}"):
                    _extra_files[name] = archive.record(f"extra/{name}")  # type: ignore[index]
            return Loader(archive).load()
        except DAMAGE as problem:
            raise RuntimeError(
                f"cannot read this archive, it is damaged or not one: {type(problem).__name__}: {problem}"
            ) from problem
