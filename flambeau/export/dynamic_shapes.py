"""Dynamic sizes: `Dim`, and which sizes of which arguments they are."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

from ..core.tensor import Tensor
from ..utils import _pytree as pytree
from .symbols import Expression, Symbol

__all__ = [
    "AdditionalInputs", "Constraint", "Dim", "ShapesCollection", "dims", "refine_dynamic_shapes_from_suggested_fixes",
]  # fmt: skip


class _DimHint:
    """Hint about a size: "AUTO", "STATIC" or "DYNAMIC", optionally within bounds."""

    def __init__(self, kind: str, min: int | None = None, max: int | None = None) -> None:
        self.type, self.min, self.max = kind, min, max

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        return _DimHint(self.type, min, max)

    def __repr__(self) -> str:
        bounds = [f"{name}={value}" for name, value in (("min", self.min), ("max", self.max)) if value is not None]
        return f"DimHint({', '.join([self.type, *bounds])})"


class Dim:
    """A named size: equal wherever it is used. `Dim("batch", min=1, max=64)`; `2 * batch` and `batch + 1` are derived sizes. `Dim.AUTO`,
    `Dim.DYNAMIC` and `Dim.STATIC` need no name."""

    AUTO = _DimHint("AUTO")
    DYNAMIC = _DimHint("DYNAMIC")
    STATIC = _DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low = 0 if min is None else min
        if max is not None and max < low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, low, max
        self.factor, self.offset = 1, 0
        self.root: Dim = self

    def _derived(self, factor: int, offset: int) -> Dim:
        made = Dim.__new__(Dim)
        made.root, made.factor, made.offset = self.root, self.factor * factor, self.offset * factor + offset
        text = self.root.__name__ if made.factor == 1 else f"{made.factor}*{self.root.__name__}"
        made.__name__ = text if not made.offset else f"{text} {'+' if made.offset > 0 else '-'} {abs(made.offset)}"
        made.min = self.root.min * made.factor + made.offset
        made.max = None if self.root.max is None else self.root.max * made.factor + made.offset
        return made

    def __add__(self, other: int) -> Dim:
        return self._derived(1, _require_integer(other, "add"))

    __radd__ = __add__

    def __sub__(self, other: int) -> Dim:
        return self._derived(1, -_require_integer(other, "subtract"))

    def __mul__(self, other: int) -> Dim:
        if _require_integer(other, "multiply") <= 0:
            raise NotImplementedError(
                f"Attempted to multiply {other} with {self.__name__}, where a positive integer was expected."
            )
        return self._derived(other, 0)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}, max={self.max})"


def _require_integer(value: Any, what: str) -> int:
    if type(value) is not int:
        raise NotImplementedError(
            f"Attempted to {what} {value}, where an integer was expected. (Only increasing linear operations with integer"
            " coefficients are supported.)"
        )
    return value


Constraint = Any


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Make several Dims, one for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """Dynamic shapes assigned to the tensors themselves: `shapes[tensor] = {0: batch}`; then `export(..., dynamic_shapes=shapes)`."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}

    def __setitem__(self, tensor: Any, shape: Any) -> None:
        self._shapes[id(tensor)] = shape

    def __getitem__(self, tensor: Any) -> Any:
        return self._shapes.setdefault(id(tensor), {})

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: tuple[Any, ...], kwargs: dict[Any, Any] | None = None) -> Any:
        """Return the shapes in the form that `export` accepts."""
        named = combined(m, args, kwargs or {})
        return pytree.tree_map(lambda leaf: self._shapes.get(id(leaf)), named)


class AdditionalInputs:
    """Further inputs of a program: sizes that differ among them are dynamic in `export(..., dynamic_shapes=inputs)`."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple, dict]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[Any, Any] | None = None) -> None:
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: tuple[Any, ...], kwargs: dict[Any, Any] | None = None) -> Any:
        first = combined(m, args, kwargs or {})
        others = [combined(m, *example) for example in self._examples]

        def shape(leaf: Any, *rest: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return None
            return tuple(
                Dim.DYNAMIC if any(r.shape[i] != size for r in rest) else None for i, size in enumerate(leaf.shape)
            )

        return pytree.tree_map(shape, first, *others)


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Any) -> Any:
    """Raise NotImplementedError: errors here do not suggest other shapes, as PyTorch's do."""
    raise NotImplementedError("the errors of Flambeau's export carry no suggested fixes to apply")


def combined(program: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names of the program's parameters."""
    function = program.forward if hasattr(program, "forward") else program
    bound = inspect.signature(function).bind(*args, **kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if inspect.signature(function).parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


def parameter_names(program: Any, args: tuple, kwargs: dict[str, Any]) -> list[str]:
    """Return the names of the arguments; those of `*args` are numbered."""
    parameters = inspect.signature(program.forward).parameters
    names: list[str] = []
    for name, value in combined(program, args, kwargs).items():
        variable = name in parameters and parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}_{i}" for i in range(len(value))] if variable else [name]
    return names


# -- symbols for sizes ----------------------------------------------------------------------------------------------------


def _shape_items(shape: Any) -> list[tuple[int, Any]]:
    if shape is None:
        return []
    return list(shape.items()) if isinstance(shape, dict) else list(enumerate(shape))


class Sizes:
    """The symbols of a program's inputs: for each leaf, which of its sizes are which."""

    def __init__(self) -> None:
        self.symbols: list[Symbol] = []
        self.of_leaf: dict[int, dict[int, Expression]] = {}  # by the leaf's number, then the dimension
        self.ranges: dict[Symbol, tuple[int, int | None]] = {}
        self.sources: dict[Symbol, str] = {}  # where each symbol was met first: L['x'].size()[0]
        self.named: dict[str, Symbol] = {}
        self.hinted: dict[Symbol, str] = {}  # those that the program may restrict: "AUTO" or "DYNAMIC"
        self.small: dict[Symbol, int] | None = None  # sizes below the example's with which the program was found to run
        self._taken: set[int] = set()

    def _new(self, source: str, hint: int, low: int, high: int | None) -> Symbol:
        number = int(hashlib.sha256(source.encode()).hexdigest(), 16) % 100
        while number in self._taken:
            number += 1
        self._taken.add(number)
        symbol = Symbol(f"s{number}", hint)
        if hint < low and low > 2 or (high is not None and hint > high):
            raise ValueError(f"{hint} not in range [{low}, {'int_oo' if high is None else high}]")
        self.symbols.append(symbol)
        self.ranges[symbol] = (low, high)
        self.sources[symbol] = source
        return symbol

    def spoken(self, symbol: Symbol) -> str:
        """Return the user's name of a symbol, else where it comes from."""
        return next((name for name, found in self.named.items() if found is symbol), self.sources[symbol])

    def add(self, leaf: int, path: str, tensor: Tensor, shape: Any) -> None:
        """Add the specification of the sizes of one leaf."""
        if shape is not None and not isinstance(shape, (dict, list, tuple)):
            raise ValueError(
                f"Unexpected input tensor shape {shape} specified at `dynamic_shapes{path.removeprefix('L')}` (expected either a list/tuple of dimensions, or a dict mapping indices to dimensions, where each dimension is an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC)"
            )
        for dim, wanted in _shape_items(shape):
            if wanted is None or isinstance(wanted, int) or (isinstance(wanted, _DimHint) and wanted.type == "STATIC"):
                if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted != tensor.shape[dim]:
                    raise ValueError(
                        f"Static shape constraint of {wanted} does not match input size of {tensor.shape[dim]}, for {path}.size()[{dim}]"
                    )
                continue
            if not isinstance(wanted, (Dim, _DimHint)):
                raise ValueError(f"Unexpected input type {type(wanted)} in the dynamic_shapes of {path}")
            source = f"{path}.size()[{dim}]"
            self.of_leaf.setdefault(leaf, {})[dim] = self._size(source, tensor.shape[dim], wanted)

    def replace(self, symbol: Symbol, other: Expression) -> None:
        """Give up a symbol: each size that it stands for is `other`, a number or another symbol."""
        for dims in self.of_leaf.values():
            dims.update({dim: other for dim, size in dims.items() if size == Expression.of(symbol)})
        self.symbols.remove(symbol)
        del self.ranges[symbol]

    def give_up_smaller(self) -> bool:
        """Restrict sizes marked AUTO or DYNAMIC to the example's and larger ones; return whether that excludes the smaller ones tried."""
        below = [s for s, size in (self.small or {}).items() if size < s.hint]
        if not below or any(s not in self.hinted for s in below):
            return False
        self.ranges.update({s: (s.hint, self.ranges[s][1]) for s in below})
        return True

    def _size(self, source: str, size: int, wanted: Any) -> Expression:
        if isinstance(wanted, _DimHint):
            if size in (0, 1) and wanted.type == "AUTO":
                return Expression(size)
            made = self._new(source, size, wanted.min if wanted.min is not None else 2, wanted.max)
            self.hinted[made] = wanted.type
            return Expression.of(made)
        root = wanted.root
        hint, rest = divmod(size - wanted.offset, wanted.factor)
        if rest:
            raise ValueError(
                f"Expected input {source} = {size} to be of the form {wanted.__name__}, where {root.__name__} is an integer"
            )
        if root.__name__ not in self.named:
            self.named[root.__name__] = self._new(source, hint, root.min, root.max)
        symbol = self.named[root.__name__]
        if symbol.hint != hint:
            raise ValueError(
                f"Constraints violated ({root.__name__})! {source} = {size} is not equal to the {symbol.hint} that"
                f" {root.__name__} has elsewhere"
            )
        return Expression.of(symbol) * wanted.factor + wanted.offset


def gather(named: dict[str, Any], dynamic_shapes: Any) -> Sizes:
    """Return symbols for the sizes that `dynamic_shapes` (by name or in order) marks as dynamic."""
    sizes = Sizes()
    if dynamic_shapes is None:
        return sizes
    if isinstance(dynamic_shapes, (tuple, list)):
        if len(dynamic_shapes) != len(named):
            raise ValueError(
                f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs` has {len(named)} elements, but `dynamic_shapes` has {len(dynamic_shapes)} elements"
            )
        dynamic_shapes = dict(zip(named, dynamic_shapes))
    unknown = [name for name in dynamic_shapes if name not in named]
    if unknown:
        raise ValueError(
            f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {list(named)} of `inputs`,"
            f" but here they are {list(dynamic_shapes)}. Alternatively, you could also ignore arg names entirely and specify"
            " `dynamic_shapes` as a list/tuple matching `inputs`."
        )
    number = 0
    for name, value in named.items():
        number = _walk(value, dynamic_shapes.get(name), f"L['{name}']", number, sizes)
    return sizes


def _walk(value: Any, shape: Any, path: str, number: int, sizes: Sizes) -> int:
    """Walk through a value and its shapes in parallel; return the number of the next leaf."""
    if isinstance(value, Tensor):
        sizes.add(number, path, value, shape)
        return number + 1
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            number = _walk(item, None if shape is None else shape[i], f"{path}[{i}]", number, sizes)
        return number
    if isinstance(value, dict):
        for key, item in value.items():
            number = _walk(item, None if shape is None else shape.get(key), f"{path}[{key!r}]", number, sizes)
        return number
    return number + len(pytree.tree_leaves(value))
