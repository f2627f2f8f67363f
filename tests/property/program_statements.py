"""The statements that random programs are made of: each is a line of Python over the tensors that live at that point.

A statement is chosen by looking at PyTorch's tensors (shapes, dtypes), so that most lines are valid; a few are wrong on
purpose. `torch` in a line is PyTorch in one run and Flambeau in the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

FLOATS = ("float32", "float64")
SMALL_FLOATS = ("float16", "bfloat16")
INTEGERS = ("int64", "int32", "uint8", "int8", "int16")
COMPLEX = ("complex64", "complex128")
COMMON = ("float32", "float32", "float64", "int64", "bool", "int32", "uint8", "float16", "bfloat16", "complex64")

SAME_SHAPE = [
    "neg",
    "abs",
    "sin",
    "cos",
    "exp",
    "tanh",
    "sigmoid",
    "sqrt",
    "square",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "relu",
    "reciprocal",
    "logical_not",
    "isnan",
    "erf",
    "isfinite",
    "sgn",
    "conj_physical",
    "expm1",
    "log1p",
    "atan",
    "rsqrt",
    "bitwise_not",
    "frac",
    "positive",
    "asinh",
    "sinh",
    "angle",
    "signbit",
]
IN_PLACE_UNARY = [
    "neg",
    "abs",
    "sin",
    "cos",
    "exp",
    "tanh",
    "sigmoid",
    "sqrt",
    "square",
    "sign",
    "floor",
    "round",
    "relu",
    "zero",
    "reciprocal",
    "erf",
    "logical_not",
    "frac",
    "trunc",
    "bitwise_not",
    "conj_physical",
    "sgn",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "pow",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "remainder",
    "fmod",
    "floor_divide",
    "logical_and",
    "logical_or",
    "bitwise_and",
    "bitwise_xor",
    "fmax",
    "fmin",
    "hypot",
    "true_divide",
    "xlogy",
    "copysign",
    "heaviside",
    "rsub",
    "nextafter",
    "logaddexp",
]
SYMBOLS = ("+", "-", "*", "/", "//", "%", "**", "==", "<", ">=", "&", "|", "^", "!=")
IN_PLACE_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "remainder",
    "floor_divide",
    "eq",
    "lt",
    "logical_and",
    "bitwise_and",
    "copy",
    "bitwise_or",
    "atan2",
    "fmod",
]
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "std",
    "var",
    "all",
    "any",
    "logsumexp",
    "nansum",
    "argmax",
    "argmin",
    "count_nonzero",
    "norm",
    "nanmean",
]
REDUCTIONS_OF_DIM = [
    "sum",
    "mean",
    "amax",
    "amin",
    "std",
    "var",
    "all",
    "any",
    "logsumexp",
    "nansum",
    "prod",
    "argmax",
    "argmin",
    "count_nonzero",
    "norm",
    "nanmean",
]
TAKE_DIM_LIST = {
    "sum",
    "mean",
    "amax",
    "amin",
    "std",
    "var",
    "all",
    "any",
    "logsumexp",
    "nansum",
    "count_nonzero",
    "norm",
}


class Choice:
    """Random choices that know the tensors alive (PyTorch's, by name)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tensors: dict[str, Any] = {}
        self.counter = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def among(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def pick(self, *conditions: Callable[[Any], bool]) -> str:
        """The name of a tensor that meets the conditions, if there is one; recent tensors are more likely."""
        names = [n for n, t in self.tensors.items() if all(c(t) for c in conditions)] or list(self.tensors)
        return self.among([*names, *names[-3:]])

    def dim(self, t: Any, extra: int = 0) -> int:
        rank = t.dim() + extra
        if self.chance(0.02):
            return self.among((rank, -rank - 1, 7))
        return self.random.randrange(-rank, rank) if rank else self.among((0, -1))

    def size(self, t: Any, d: int) -> int:
        return t.shape[d] if t.dim() and -t.dim() <= d < t.dim() else 1

    def position(self, n: int) -> int:
        if n == 0 or self.chance(0.02):
            return self.among((n, -n - 1))
        return self.random.randrange(-n, n)

    def slice(self, n: int) -> str:
        start = self.among(("", self.random.randrange(-n - 1, n + 1)))
        stop = self.among(("", "", self.random.randrange(-n - 1, n + 2)))
        return f"{start}:{stop}" + self.among(("", "", ":2", ":3"))

    def number(self) -> str:
        return self.among(("2", "-1", "0", "3", "0.5", "-1.5", "2.0", "True", "1", "1.25", "-2", "(1+2j)", "1e-3"))

    def real_number(self) -> str:
        return self.among(("2", "-1", "0", "0.5", "-1.5", "1", "1.25", "True"))

    def dtype(self) -> str:
        return "torch." + self.among((*COMMON, "complex128", "int16", "int8"))

    def like(self, name: str) -> str:
        """A tensor that broadcasts with the named one: live, a number, or made from it."""
        shape = tuple(self.tensors[name].shape)
        fitting = [n for n, t in self.tensors.items() if broadcasts(tuple(t.shape), shape)]
        return self.among((*fitting, *fitting, self.number(), f"torch.tensor({self.number()})", self.made(shape)))

    def made(self, shape: tuple[int, ...], dtype: str | None = None) -> str:
        dtype = dtype or self.among(COMMON)
        return f"make({dtype!r}, {shape}, {self.random.randrange(1000)})"

    def shape(self) -> tuple[int, ...]:
        rank = self.among((0, 1, 1, 2, 2, 2, 3, 3, 4))
        return tuple(self.among((1, 2, 2, 3, 3, 4, 5)) if self.chance(0.97) else 0 for _ in range(rank))

    def permutation(self, n: int) -> list[int]:
        return self.random.sample(range(n), n)


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def is_float(t: Any) -> bool:
    return t.is_floating_point()


def is_integral(t: Any) -> bool:
    return not t.is_floating_point() and not t.is_complex()


def is_complex(t: Any) -> bool:
    return t.is_complex()


def is_inexact(t: Any) -> bool:
    return t.is_floating_point() or t.is_complex()


def tracked(t: Any) -> bool:
    return t.requires_grad


def tame(t: Any) -> bool:
    """Small finite numbers: what other conversions to integers give is not defined."""
    return t.numel() == 0 or (t.is_complex() is False and bool((t.detach().double().abs() < 100).all()))


def ranked(least: int, most: int = 9) -> Callable[[Any], bool]:
    return lambda t: least <= t.dim() <= most


def divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]


# -- views -----------------------------------------------------------------------------------------------------------
def view_expression(c: Choice, name: str | None = None) -> str:
    """An expression that is a view of a live tensor."""
    name = name or c.pick(ranked(1))
    t = c.tensors[name]
    return f"{name}{c.among(VIEWS)(c, t)}"


def _narrow(c: Choice, t: Any) -> str:
    d = c.dim(t)
    n = c.size(t, d)
    start = c.random.randrange(n + 1)
    return f".narrow({d}, {start}, {c.random.randrange(n - start + 1) + c.chance(0.02)})"


def _index(c: Choice, t: Any) -> str:
    parts: list[str] = []
    for n in t.shape[: c.random.randrange(t.dim() + 1)]:
        parts.append(c.among((str(c.position(n)), c.slice(n), c.slice(n), ":")))
    if c.chance(0.2):
        parts.insert(c.random.randrange(len(parts) + 1), "None")
    if c.chance(0.15):
        parts.append("...")
    return f"[{', '.join(parts) or '...'}]"


def _reshape(c: Choice, t: Any) -> str:
    n, parts = t.numel(), []
    for _ in range(c.random.randrange(1, 4)):
        parts.append(c.among(divisors(n) or [0]))
        n = n // parts[-1] if parts[-1] else 0
    parts.append(n)
    if c.chance(0.3):
        parts[c.random.randrange(len(parts))] = -1
    return f".{c.among(('view', 'reshape', 'reshape'))}({', '.join(map(str, parts))})"


def _expand(c: Choice, t: Any) -> str:
    sizes = [c.among((-1, n)) if n != 1 else c.among((2, 3, 1, -1)) for n in t.shape]
    return f".expand({[2] * c.chance(0.3) + sizes})"


def _unfold(c: Choice, t: Any) -> str:
    d = c.dim(t)
    return f".unfold({d}, {c.random.randrange(c.size(t, d) + 1)}, {c.among((1, 1, 2))})"


def _strided(c: Choice, t: Any) -> str:
    room = t.numel() - 1
    sizes, strides = [], []
    for _ in range(c.random.randrange(3)):
        stride = c.among((0, 1, 1, 2, 3))
        size = c.among((1, 2, 3)) if stride == 0 else c.random.randrange(max(room, 0) // stride + 1) + 1
        sizes.append(min(size, 5))
        strides.append(stride)
        room -= (sizes[-1] - 1) * stride
    offset = c.among(("", f", {c.random.randrange(max(room, 0) + 1)}"))
    return f".as_strided({sizes}, {strides}{offset})"


def _two_dims(c: Choice, t: Any) -> tuple[int, int]:
    if t.dim() < 2:
        return 0, 1 if c.chance(0.1) else 0
    first, second = c.random.sample(range(t.dim()), 2)
    return first, second


def _piece(c: Choice, t: Any) -> str:
    d = c.dim(t)
    n = c.size(t, d)
    parts = c.random.randrange(1, 4)
    how = c.among((f"chunk({parts}, {d})", f"split({parts}, {d})", f"unbind({d})", f"tensor_split({parts}, {d})"))
    return f".{how}[{c.among((0, -1))}]" if n else f".chunk(2, {d})[0]"


def _select(c: Choice, t: Any) -> str:
    d = c.dim(t)
    return f".select({d}, {c.position(c.size(t, d))})"


VIEWS: tuple[Callable[[Choice, Any], str], ...] = (
    _narrow,
    _index,
    _index,
    _index,
    _reshape,
    _reshape,
    _expand,
    _unfold,
    _strided,
    _piece,
    _piece,
    _select,
    lambda c, t: f".transpose({c.dim(t)}, {c.dim(t)})",
    lambda c, t: f".permute({c.permutation(t.dim())})",
    lambda c, t: ".diagonal({}, {}, {})".format(c.among((0, 1, -1)), *_two_dims(c, t)),
    lambda c, t: f".unsqueeze({c.dim(t, 1)})",
    lambda c, t: c.among((".squeeze()", f".squeeze({c.dim(t)})")),
    lambda c, t: f".movedim({c.dim(t)}, {c.dim(t)})",
    lambda c, t: f".flatten({c.among((0, 0, 1))})",
    lambda c, t: f".swapaxes({c.dim(t)}, {c.dim(t)})",
    lambda c, t: c.among((".detach()", f".view_as(torch.ones({tuple(t.shape)}))", ".mT", ".ravel()", ".data")),
    lambda c, t: c.among((".real", ".imag")) if t.is_complex() else c.among((".real", ".adjoint()", ".conj()")),
    lambda c, t: "[...]",
    lambda c, t: f".unflatten({c.dim(t)}, (1, -1))",
)


def view(c: Choice) -> str:
    if c.chance(0.05):
        name = c.pick(is_complex)
        return f"{c.fresh()} = torch.view_as_real({name})"
    return f"{c.fresh()} = {view_expression(c)}"


# -- pointwise -------------------------------------------------------------------------------------------------------
def unary(c: Choice) -> str:
    return f"{c.fresh()} = {c.pick()}.{c.among(SAME_SHAPE)}()"


def unary_in_place(c: Choice) -> str:
    target = c.pick() if c.chance(0.5) else view_expression(c)
    return f"{target}.{c.among(IN_PLACE_UNARY)}_()"


def binary(c: Choice) -> str:
    name = c.pick()
    other = c.like(name)
    if c.chance(0.5):
        left, right = (name, other) if c.chance(0.7) else (other, name)
        return f"{c.fresh()} = {left} {c.among(SYMBOLS)} {right}"
    return f"{c.fresh()} = torch.{c.among(BINARY)}({name}, {other})"


def binary_in_place(c: Choice) -> str:
    name = c.pick()
    if c.chance(0.5):
        return f"{name}.{c.among(IN_PLACE_BINARY)}_({c.like(name)})"
    if c.chance(0.3):
        return f"{name} {c.among(('+=', '-=', '*=', '/=', '//=', '**=', '&=', '%='))} {c.like(name)}"
    return f"{view_expression(c)}.{c.among(IN_PLACE_BINARY)}_({c.among((c.number(), name))})"


def scaled(c: Choice) -> str:
    name = c.pick()
    a, b = c.like(name), c.like(name)
    return c.among(
        (
            f"{c.fresh()} = torch.add({name}, {a}, alpha={c.number()})",
            f"{c.fresh()} = torch.sub({name}, {a}, alpha={c.number()})",
            f"{c.fresh()} = torch.addcmul({name}, {a}, {b}, value={c.number()})",
            f"{c.fresh()} = torch.addcdiv({name}, {a}, {b}, value={c.number()})",
            f"{name}.addcmul_({a}, {b}, value={c.number()})",
            f"{c.fresh()} = torch.lerp({name}, {a}, {c.number()})",
            f"{c.fresh()} = torch.div({name}, {a}, rounding_mode={c.among(('floor', 'trunc'))!r})",
            f"{name}.lerp_({a}, {c.number()})",
        )
    )


def with_out(c: Choice) -> str:
    """Into a live tensor, which may have another shape, dtype or layout, or overlap the operands."""
    name = c.pick()
    target = c.pick(lambda t: t.shape == c.tensors[name].shape, lambda t: not t.requires_grad)
    if c.chance(0.2):
        target = c.pick()
    if c.chance(0.15):
        target = f"torch.empty({c.among((0, (0,), (2, 3)))}, dtype={c.dtype()})"
    call = c.among(
        (
            f"{c.among(('add', 'mul', 'div', 'maximum', 'sub', 'eq', 'pow'))}({name}, {c.like(name)}",
            f"{c.among(('sin', 'exp', 'abs', 'neg', 'floor', 'logical_not'))}({name}",
            f"{c.among(('sum', 'mean', 'amax', 'prod'))}({name} * 1, {c.dim(c.tensors[name])}",
            f"cumsum({name} * 1, {c.dim(c.tensors[name])}",
            f"clamp({name}, {c.number()}, {c.number()}",
            f"cat([{name}, {name}], {c.dim(c.tensors[name])}",
            f"stack([{name}, {name}], {c.dim(c.tensors[name], 1)}",
            f"gather({name}, {c.dim(c.tensors[name])}, torch.zeros_like({name}, dtype=torch.int64)",
            f"index_select({name}, {c.dim(c.tensors[name])}, torch.tensor([0])",
            f"where({c.pick(lambda t: str(t.dtype) == 'torch.bool')}, {name}, {c.like(name)}",
        )
    )
    return f"{c.fresh()} = torch.{call}, out={target})"


def clamped(c: Choice) -> str:
    name = c.pick()
    limits = [x for x in (c.real_number(), c.real_number(), c.like(name)) if "j" not in x]
    low, high = c.among(("None", *limits)), c.among(limits)
    return c.among(
        (
            f"{c.fresh()} = {name}.clamp({low}, {high})",
            f"{name}.clamp_({low}, {high})",
            f"{c.fresh()} = {name}.clamp_min({c.real_number()})",
            f"{c.fresh()} = torch.clamp({name}, max={high})",
        )
    )


def converted(c: Choice) -> str:
    name = c.pick(tame)
    if not tame(c.tensors[name]):
        return f"{c.fresh()} = {name}.clone()"
    dtype = c.dtype()
    if dtype in ("torch.uint8",):
        name = f"{name}.abs()" if c.tensors[name].dtype.is_floating_point else name
    memory = c.among(("torch.contiguous_format", "torch.preserve_format", "torch.preserve_format"))
    return c.among(
        (
            f"{c.fresh()} = {name}.to({dtype})",
            f"{c.fresh()} = {name}.to({dtype}, copy=True)",
            f"{c.fresh()} = {name}.{c.among(('float', 'double', 'cfloat', 'bool', 'half', 'bfloat16'))}()",
            f"{c.fresh()} = {name}.clone()",
            f"{c.fresh()} = {name}.clone(memory_format={memory})",
            f"{c.fresh()} = {name}.contiguous()",
            f"{c.fresh()} = torch.{c.among(('zeros', 'ones', 'empty'))}_like({name}).fill_({c.among(('1', '0', 'True'))})",
            f"{c.fresh()} = {name}.new_full({c.shape()}, {c.among(('2', '1', 'True'))})",
        )
    )


# -- reductions, order, scans ----------------------------------------------------------------------------------------
def reduced(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    if c.chance(0.3):
        return f"{c.fresh()} = {name}.{c.among(REDUCTIONS)}()"
    kind = c.among(REDUCTIONS_OF_DIM)
    keep = c.among(("", ", keepdim=True"))
    if kind == "count_nonzero":
        keep = ""
    if kind == "norm":
        return f"{c.fresh()} = {name}.norm({c.among((2, 1, 0, 3))}, dim={c.dim(t)}{keep})"
    dims: Any = c.dim(t)
    if kind in TAKE_DIM_LIST and c.chance(0.4):
        dims = tuple(
            c.random.sample(range(t.dim()), c.random.randrange(kind == "logsumexp" and t.dim() > 0, t.dim() + 1))
        )
    if kind in ("sum", "prod", "mean", "nansum") and c.chance(0.2):
        keep += f", dtype={c.among(('torch.float64', 'torch.float32', 'torch.int64'))}"
        if keep.endswith("int64") and not is_integral(t):
            keep = ""
    return f"{c.fresh()} = {name}.{kind}({dims}{keep})"


def extremes(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    d = c.dim(t)
    kind = c.among(("max", "min", "cummax", "cummin", "median", "aminmax"))
    if kind == "median":  # which of equal numbers is chosen is left open
        return f"{c.fresh()} = {name}.detach().median({d}).values"
    if kind == "aminmax":
        return f"{c.fresh()}, {c.fresh()} = {name}.aminmax(dim={d})"
    if kind in ("max", "min") and c.chance(0.3):
        return f"{c.fresh()} = {name}.{kind}()"
    return f"{c.fresh()}, {c.fresh()} = {name}.{kind}({d})"


def ordered(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    d = c.dim(t)
    k = c.random.randrange(c.size(t, d) + 1)
    return c.among(
        (
            f"{c.fresh()}, {c.fresh()} = {name}.sort({d}, stable=True)",
            f"{c.fresh()}, {c.fresh()} = {name}.sort({d}, descending=True, stable=True)",
            f"{c.fresh()} = {name}.argsort({d}, stable=True)",
            f"{c.fresh()} = {name}.topk({k}, {d}).values",
            f"{c.fresh()} = {name}.unique().clone()",
            f"{c.fresh()} = {name}.unique(return_inverse=True)[1]",
            f"{c.fresh()} = {name}.unique(return_counts=True)[1].clone()",
            f"{c.fresh()} = {name}.unique(dim={d}).clone()",
            f"{c.fresh()} = {name}.unique_consecutive().clone()",
            f"{c.fresh()} = {name}.kthvalue({max(k, 1)}, {d}).values",
            f"{c.fresh()} = {name}.flip({d})",
            f"{c.fresh()} = {name}.roll({c.among((1, -1, 2))}, {d})",
            f"{c.fresh()} = {name}.flip([{d}, 0])",
        )
    )


def scanned(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    kind = c.among(("cumsum", "cumprod", "logcumsumexp", "diff", "cumsum_", "cumprod_", "softmax", "log_softmax"))
    prefix = "" if kind.endswith("_") else f"{c.fresh()} = "
    argument = f"dim={c.dim(t)}"
    return f"{prefix}{name}.{kind}({argument})"


# -- joining and products --------------------------------------------------------------------------------------------
def joined(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    other = c.pick(lambda x: x.shape == t.shape)
    if c.chance(0.3):
        other = c.made(tuple(t.shape))
    return c.among(
        (
            f"{c.fresh()} = torch.cat([{name}, {other}], {c.dim(t)})",
            f"{c.fresh()} = torch.stack([{name}, {other}], {c.dim(t, 1)})",
            f"{c.fresh()} = torch.cat(({name}, {view_expression(c, name)}))",
            f"{c.fresh()} = torch.hstack([{name}, {other}])",
            f"{c.fresh()} = {name}.repeat({[c.among((1, 2)) for _ in range(t.dim() + c.chance(0.2))]})",
            f"{c.fresh()} = {name}.repeat_interleave(2, {c.dim(t)})",
            f"{c.fresh()} = {name}.tile((2,))",
            f"{c.fresh()} = torch.nn.functional.pad({name}, (1, {c.among((0, 1, -1))}), value={c.among(('0.0', '2.0'))})",
            f"{c.fresh()} = {name}.tril({c.among((0, 1, -1))})",
            f"{c.fresh()} = {name}.triu({c.among((0, 1, -1))})",
            f"{c.fresh()} = {name}.diag()",
            f"{c.fresh()} = torch.diag_embed({name})",
            f"{c.fresh()} = {name}.broadcast_to({(2, *t.shape)})",
        )
    )


def product(c: Choice) -> str:
    name = c.pick(is_inexact, ranked(1, 3))
    t = c.tensors[name]
    if t.dim() < 1:
        return binary(c)
    dtype = str(t.dtype).split(".")[1] if c.chance(0.97) else None
    right = c.made((t.shape[-1], 2), dtype)
    fitting = [n for n, x in c.tensors.items() if x.dim() and x.shape[0] == t.shape[-1] and x.dtype == t.dtype]
    if fitting and c.chance(0.6):
        right = c.among(fitting)
    options = [f"{c.fresh()} = {name} @ {right}", f"{c.fresh()} = torch.matmul({name}, {right})"]
    options.append(f"{c.fresh()} = torch.tensordot({name}, {right}, 1)")
    if t.dim() == 1:
        options += [f"{c.fresh()} = torch.outer({name}, {name})", f"{c.fresh()} = {name}.dot({name})"]
        options.append(f"{c.fresh()} = torch.einsum('i,j->ij', {name}, {name})")
    if t.dim() == 2:
        options += [f"{c.fresh()} = {name}.mm({right})", f"{c.fresh()} = torch.einsum('ij,kj->ik', {name}, {name})"]
        options.append(f"{c.fresh()} = {name} @ {name}.T")
        options.append(f"{c.fresh()} = torch.einsum('ij->j', {name})")
        options.append(
            f"{c.fresh()} = torch.addmm({c.made((2,), dtype)}, {name}, {c.made((t.shape[1], 2), dtype)}, beta=2)"
        )
        options.append(f"{c.fresh()} = {name}.mv({c.made((t.shape[1],), dtype)})")
        options.append(f"{c.fresh()} = torch.einsum('ii->i', {name})")
    if t.dim() == 3:
        options.append(f"{c.fresh()} = torch.bmm({name}, {name}.transpose(1, 2))")
        options.append(f"{c.fresh()} = torch.einsum('bij,bkj->bik', {name}, {name})")
        options.append(f"{c.fresh()} = torch.einsum('...ij->...ji', {name})")
    return c.among(options)


# -- indexing --------------------------------------------------------------------------------------------------------
def index_list(c: Choice, n: int, length: int) -> str:
    return f"torch.tensor({[c.position(n) if n else 0 for _ in range(length)]}, dtype={c.among(('torch.int64',) * 4 + ('torch.int32',))})"


def advanced_key(c: Choice, t: Any) -> str:
    """A subscript with at least one tensor or list."""
    masks = [
        n for n, x in c.tensors.items() if str(x.dtype) == "torch.bool" and x.dim() and x.shape == t.shape[: x.dim()]
    ]
    if masks and c.chance(0.4):
        return c.among(masks)
    length = c.random.randrange(1, 4)
    parts = []
    for n in t.shape[: c.random.randrange(1, t.dim() + 1)]:
        listed = str([c.position(n) if n else 0 for _ in range(length)])
        parts.append(c.among((index_list(c, n, length), listed, c.slice(n), ":", str(c.position(n)))))
    place = c.random.randrange(len(parts))
    parts[place] = index_list(c, t.shape[place], length)
    if c.chance(0.1):
        parts.insert(c.random.randrange(len(parts) + 1), "None")
    if c.chance(0.1):
        parts.append("...")
    return ", ".join(parts)


def indexed(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    if not t.dim():
        return f"{c.fresh()} = {name}[{c.among(('None', '...', '()', 'True'))}]"
    return f"{c.fresh()} = {name}[{advanced_key(c, t)}]"


def assigned(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    if not t.dim():
        return f"{name}[...] = {c.number()}"
    key = advanced_key(c, t) if c.chance(0.5) else _index(c, t)[1:-1]
    value = c.among((c.number(), c.number(), f"{name}[{key}]", f"torch.tensor({c.number()})", c.like(name)))
    return f"{name}[{key}] = {value}"


def masked(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    mask = c.among(
        (f"({name} > 0)", f"({name} != 1)", c.made(tuple(t.shape), "bool"), c.made(tuple(t.shape[-1:]), "bool"))
    )
    return c.among(
        (
            f"{c.fresh()} = {name}.masked_fill({mask}, {c.number()})",
            f"{name}.masked_fill_({mask}, {c.number()})",
            f"{c.fresh()} = {name}.masked_select({mask})",
            f"{c.fresh()} = torch.where({mask}, {name}, {c.like(name)})",
            f"{c.fresh()} = torch.where({mask}, {c.number()}, {name})",
            f"{name}[{mask}] = {c.number()}",
            f"{c.fresh()} = {name}.nonzero().clone()",
            f"{name}.masked_scatter_({mask}, {c.pick(lambda x: x.dtype == t.dtype)}.clone())",
            f"{c.fresh()} = {name}.where({mask}, {c.number()})",
        )
    )


def scattered(c: Choice) -> str:
    name = c.pick(ranked(1))
    t = c.tensors[name]
    if not t.dim():
        return unary(c)
    d = c.dim(t)
    n = c.size(t, d)
    if n == 0:
        return joined(c)
    shape = list(t.shape)
    index = f"(make('int64', {tuple(shape)}, {c.random.randrange(99)}) % {max(n, 1)})"
    chosen = f"torch.tensor({[c.random.randrange(n) if n else 0 for _ in range(2)]})"
    part = list(shape)
    if -len(part) <= d < len(part):
        part[d] = 2
    dtype = str(t.dtype).split(".")[1] if c.chance(0.95) else None
    source, block = c.made(tuple(shape), dtype), c.made(tuple(part), dtype)
    flat = f"torch.tensor({[c.position(t.numel()) if t.numel() else 0 for _ in range(3)]})"
    reduce = c.among(("sum", "prod", "amax", "amin", "mean"))
    return c.among(
        (
            f"{c.fresh()} = {name}.gather({d}, {index})",
            f"{c.fresh()} = {name}.scatter({d}, {index}, {c.number()})",
            f"{c.fresh()} = {name}.scatter_add({d}, {index}, {source})",
            f"{name}.scatter_add_({d}, {index}, {source})",
            f"{name}.scatter_({d}, {index}, {c.number()})",
            f"{c.fresh()} = {name}.scatter_reduce({d}, {index}, {source}, {reduce!r})",
            f"{c.fresh()} = {name}.index_select({d}, {chosen})",
            f"{c.fresh()} = {name}.index_add({d}, {chosen}, {block})",
            f"{name}.index_add_({d}, {chosen}, {block}, alpha=2)",
            f"{name}.index_copy_({d}, {chosen}, {block})",
            f"{name}.index_fill_({d}, {chosen}, {c.number()})",
            f"{c.fresh()} = {name}.take({flat})",
            f"{name}.put_({flat}, {c.made((3,), dtype)}, accumulate={c.among((True, False))})",
            f"{c.fresh()} = {name}.take_along_dim({index}, {d})",
            f"{name}.index_put_(({chosen},), torch.ones((), dtype={t.dtype}), accumulate=True)",
            f"{c.fresh()} = torch.select_scatter({name}, {name}.select({d}, 0) * 2, {d}, 0)",
            f"{c.fresh()} = torch.slice_scatter({name}, {name}.narrow({d}, 0, 1), {d}, 0, 1)",
        )
    )


# -- autograd --------------------------------------------------------------------------------------------------------
def leaf(c: Choice) -> str:
    dtype = c.among(("float32", "float32", "float64", "float64", "bfloat16", "complex64"))
    return f"{c.fresh()} = {c.made(c.shape(), dtype)}.requires_grad_()"


def graph_change(c: Choice) -> str:
    name = c.pick(tracked)
    return c.among(
        (
            f"{c.fresh()} = {name}.detach()",
            f"{name}.retain_grad()",
            f"{name}.register_hook(lambda g: g * 2)",
            f"{name}.register_hook(lambda g: log.append(({name!r}, tuple(g.shape), str(g.dtype))))",
            f"{name}.detach_()",
            f"{c.pick()}.requires_grad_()",
            f"{name}.requires_grad_(False)",
            f"{name}.data.mul_(2)",
            f"{c.fresh()} = {name}.clone().requires_grad_()",
            f"{name}.zero_()",
            f"{c.fresh()} = {name}.detach().clone().requires_grad_()",
            f"{name}.grad = None",
        )
    )


def backward(c: Choice) -> str:
    name = c.pick(tracked)
    t = c.tensors[name]
    part = f"{name}.abs()" if t.is_complex() else name
    retain = c.among(("", "retain_graph=True", "create_graph=True"))
    options = [f"{part}.sum().backward({retain})", f"({part} * {part}).sum().backward({retain})"]
    options.append(f"{name}.backward(torch.ones_like({name}){', ' + retain if retain else ''})")
    source = c.pick(tracked)
    options.append(
        f"{c.fresh()} = torch.autograd.grad({part}.sum(), {source}, {retain or 'allow_unused=False'})[0].contiguous().clone()"
    )
    options.append(
        f"{c.fresh()} = torch.autograd.grad(({part} ** 2).sum(), {source}, create_graph=True)[0].contiguous().clone()"
    )
    return c.among(options)


FAMILIES: tuple[tuple[Callable[[Choice], str], int], ...] = (
    (view, 8),
    (unary, 3),
    (unary_in_place, 3),
    (binary, 6),
    (binary_in_place, 5),
    (scaled, 2),
    (with_out, 3),
    (clamped, 2),
    (converted, 3),
    (reduced, 4),
    (extremes, 2),
    (ordered, 3),
    (scanned, 2),
    (joined, 4),
    (product, 4),
    (indexed, 3),
    (assigned, 4),
    (masked, 3),
    (scattered, 4),
    (leaf, 1),
    (graph_change, 2),
    (backward, 2),
)


def statement(c: Choice) -> str:
    """One random line over the live tensors."""
    makers, weights = zip(*FAMILIES)
    line = c.random.choices(makers, weights)[0](c)
    if c.chance(0.06):
        line = f"with torch.no_grad(): {line}"
    return line
