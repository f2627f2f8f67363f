"""Nested containers as trees: flattened to a list of leaves and a shape, and rebuilt from them.

>>> leaves, shape = tree_flatten({"a": [1, 2], "b": 3})
>>> leaves
[1, 2, 3]
>>> tree_unflatten([10, 20, 30], shape)
{'a': [10, 20], 'b': 30}

Lists, tuples, named tuples, dicts, OrderedDicts, defaultdicts and deques are containers, and types given to `register_pytree_node`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .return_types import NamedResult
from .settings import may_change

Context = Any
PyTree = Any


class MappingKey(NamedTuple):
    """A path entry: the key of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, container: Any) -> Any:
        return container[self.key]


class SequenceKey(NamedTuple):
    """A path entry: the index in a list, a tuple or a deque."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, container: Any) -> Any:
        return container[self.idx]


class GetAttrKey(NamedTuple):
    """A path entry: the field of a named tuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, container: Any) -> Any:
        return getattr(container, self.name)


class NodeDef(NamedTuple):
    """Functions that flatten and rebuild one type of container."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    keys_fn: Callable[[Any], list[Any]]


SUPPORTED_NODES: dict[Any, NodeDef] = may_change({}, "SUPPORTED_NODES")
_NAMED = NamedTuple  # the key under which named tuples of all classes are found


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[..., Any] | None = None,
    from_dumpable_context: Callable[..., Any] | None = None,
    flatten_with_keys_fn: Callable[..., Any] | None = None,
) -> None:
    """Treat instances of `cls` as containers: `flatten_fn(x)` returns its children and the context needed to rebuild it."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")

    def keys(container: Any) -> list[Any]:
        if flatten_with_keys_fn is None:
            raise ValueError(
                f"Did not find a flatten_with_keys_fn for type: {cls}. Please pass one to register_pytree_node."
            )
        return [key for key, _ in flatten_with_keys_fn(container)[0]]

    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, keys)


_register_pytree_node = register_pytree_node


def _sequence_keys(container: Any) -> list[Any]:
    return [SequenceKey(i) for i in range(len(container))]


def _mapping_keys(container: Any) -> list[Any]:
    return [MappingKey(k) for k in container]


# Classes derived from list and dict are registered with these by the libraries that define them.


def _list_flatten(x: list[Any]) -> tuple[list[Any], Any]:
    return x, None


def _list_flatten_with_keys(x: list[Any]) -> tuple[list[Any], Any]:
    return list(zip(_sequence_keys(x), x)), None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    values, context = _dict_flatten(d)
    return list(zip(_mapping_keys(d), values)), context


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values))


for _node in (
    NodeDef(list, _list_flatten, _list_unflatten, _sequence_keys),
    NodeDef(tuple, lambda x: (list(x), None), lambda c, _: tuple(c), _sequence_keys),
    NodeDef(dict, _dict_flatten, _dict_unflatten, _mapping_keys),
    NodeDef(OrderedDict, _dict_flatten, lambda c, keys: OrderedDict(zip(keys, c)), _mapping_keys),
    NodeDef(
        defaultdict,
        lambda x: (list(x.values()), [x.default_factory, list(x)]),
        lambda c, context: defaultdict(context[0], zip(context[1], c)),
        _mapping_keys,
    ),
    NodeDef(deque, lambda x: (list(x), x.maxlen), lambda c, length: deque(c, maxlen=length), _sequence_keys),
    NodeDef(
        _NAMED,
        lambda x: (list(x), type(x)),
        lambda c, kind: kind(c) if issubclass(kind, NamedResult) else kind(*c),
        lambda x: [GetAttrKey(name) for name in x._fields],
    ),
):
    SUPPORTED_NODES[_node.type] = _node


def is_namedtuple_class(cls: Any) -> bool:
    fields = getattr(cls, "_fields", None)
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(fields, tuple)


def is_namedtuple_instance(obj: Any) -> bool:
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def _node_type(tree: Any) -> Any:
    kind = type(tree)
    return _NAMED if kind not in SUPPORTED_NODES and is_namedtuple_class(kind) else kind


_get_node_type = _node_type  # the name under which programs ask for it


class TreeSpec:
    """The shape of a tree: a container's type, its context and the shapes of its children; a leaf has none of them."""

    __slots__ = ("type", "_context", "_children", "num_leaves")

    num_leaves: int

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]):
        self.type, self._context, self._children = type, context, children_specs
        self.num_leaves = 1 if type is None else sum(child.num_leaves for child in children_specs)

    @property
    def context(self) -> Any:
        return self._context

    @property
    def num_children(self) -> int:
        return len(self._children)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(child.num_nodes for child in self._children)

    @property
    def children_specs(self) -> list[TreeSpec]:
        return self._children

    def children(self) -> list[TreeSpec]:
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        return self._children[index]

    def is_leaf(self) -> bool:
        return self.type is None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self._context, self._children) == (other.type, other._context, other._children)

    def __hash__(self) -> int:
        return hash((self.type, str(self._context), tuple(self._children)))

    def __repr__(self) -> str:
        return self._format(0)

    def _format(self, indent: int) -> str:
        if self.type is None:
            return "*"
        name = "namedtuple" if self.type is _NAMED else self.type.__name__
        gap = ",\n" + " " * (indent + 2)
        return f"TreeSpec({name}, {self._context}, [{gap.join(c._format(indent + 2) for c in self._children)}])"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Return the tree of this shape with these leaves."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to a pytree that holds"
                f" {self.num_leaves} items ({self})."
            )
        return self._build(iter(given))

    def _build(self, leaves: Any) -> Any:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn(
            [child._build(leaves) for child in self._children], self._context
        )

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return the parts of `tree` where this shape has leaves."""
        parts: list[Any] = []
        self._collect(tree, parts)
        return parts

    def _collect(self, tree: Any, parts: list[Any]) -> None:
        if self.type is None:
            parts.append(tree)
            return
        kind = _node_type(tree)
        mappings = (dict, OrderedDict, defaultdict)
        if kind is not self.type and not (kind in mappings and self.type in mappings):
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if len(children) != len(self._children):
            raise ValueError(f"Node arity mismatch; expected {len(self._children)}, but got {len(children)}.")
        if kind in mappings:
            keys = self._context[1] if self.type is defaultdict else self._context
            if set(keys) != set(tree):
                raise ValueError(f"Node keys mismatch; expected {keys}, but got {list(tree)}.")
            children = [tree[key] for key in keys]
        elif context != self._context and self.type is not deque:
            raise ValueError(f"Node context mismatch for {self.type!r}; expected {self._context}, but got {context}.")
        for spec, child in zip(self._children, children):
            spec._collect(child, parts)


_LEAF = TreeSpec(None, None, [])


def LeafSpec() -> TreeSpec:  # noqa: N802  a class in PyTorch
    """Return the structure of a single leaf."""
    return _LEAF


def treespec_leaf() -> TreeSpec:
    return _LEAF


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _node_type(tree) not in SUPPORTED_NODES


def _flatten(tree: Any, is_leaf: Callable[[Any], bool] | None, leaves: list[Any]) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = _node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, is_leaf, leaves) for child in children])


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves, and the shape that `tree_unflatten` needs."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, is_leaf, leaves)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Return the tree of this shape with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    yield from tree_leaves(tree, is_leaf)


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_leaves(value)]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Return a tree of the same shape with `func(leaf, ...)` for leaves, the further arguments from trees of that shape."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *(spec.flatten_up_to(rest) for rest in rests)))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call `func` on all leaves, for its effects; return the tree."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for given in zip(leaves, *(spec.flatten_up_to(rest) for rest in rests)):
        func(*given)
    return tree


def _chooser(which: Any) -> Callable[[Any], bool]:
    if isinstance(which, (type, tuple)) or hasattr(which, "__args__"):
        return lambda leaf: isinstance(leaf, which)
    return which


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: the function is called on leaves of these types (or that pass the test), others are returned unchanged."""
    chosen = _chooser(type_or_types_or_pred)
    return lambda func: lambda leaf: func(leaf) if chosen(leaf) else leaf


def tree_map_only(
    type_or_types_or_pred: Any, /, func: Callable[..., Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, /, func: Callable[..., Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf))


def tree_all_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    chosen = _chooser(type_or_types)
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if chosen(leaf))


def tree_any_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    chosen = _chooser(type_or_types)
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if chosen(leaf))


# -- with paths -----------------------------------------------------------------------------------------------------------


def _paths(
    tree: Any, prefix: tuple[Any, ...], is_leaf: Callable[[Any], bool] | None
) -> Iterable[tuple[tuple[Any, ...], Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield prefix, tree
        return
    node = SUPPORTED_NODES[_node_type(tree)]
    for key, child in zip(node.keys_fn(tree), node.flatten_fn(tree)[0]):
        yield from _paths(child, (*prefix, key), is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the leaves, each with its path."""
    return list(_paths(tree, (), is_leaf))


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Apply `tree_map` with a function that takes the path before the leaf."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    paths, leaves = [path for path, _ in found], [leaf for _, leaf in found]
    return spec.unflatten(map(func, paths, leaves, *(spec.flatten_up_to(rest) for rest in rests)))


def keystr(kp: tuple[Any, ...]) -> str:
    """Return a path as Python would write it."""
    return "".join(str(key) for key in kp)


def key_get(obj: Any, kp: tuple[Any, ...]) -> Any:
    """Return the value at the end of a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


def register_constant(cls: type) -> None:
    """Treat instances of `cls` as part of the structure, not as values: they have no children and are kept unchanged."""
    register_pytree_node(cls, lambda x: ([], x), lambda children, x: x)
