"""The statements that random programs are made of: each is a line of Python over the tensors that live at that point.
`torch` in a line is PyTorch in one run and Flambeau in the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from program_choices import (
    Choice,
    _index,
    is_inexact,
    is_integral,
    ranked,
    tame,
    tracked,
    view,
    view_expression,
)


def words(text: str) -> list[str]:
    return text.split()


SAME_SHAPE = words(
    "neg abs sin cos exp tanh sigmoid sqrt square sign floor ceil round trunc relu reciprocal logical_not "
    "isnan erf isfinite sgn conj_physical expm1 log1p atan rsqrt bitwise_not frac positive asinh sinh angle "
    "signbit"
)
IN_PLACE_UNARY = words(
    "neg abs sin cos exp tanh sigmoid sqrt square sign floor round relu zero reciprocal erf logical_not frac "
    "trunc bitwise_not conj_physical sgn"
)
BINARY = words(
    "add sub mul div maximum minimum pow atan2 eq ne lt le gt ge remainder fmod floor_divide logical_and "
    "logical_or bitwise_and bitwise_xor fmax fmin hypot true_divide xlogy copysign heaviside rsub nextafter "
    "logaddexp"
)
SYMBOLS = ("+", "-", "*", "/", "//", "%", "**", "==", "<", ">=", "&", "|", "^", "!=")
IN_PLACE_BINARY = words(
    "add sub mul div pow remainder floor_divide eq lt logical_and bitwise_and copy bitwise_or atan2 fmod"
)
REDUCTIONS = words("sum mean prod amax amin std var all any logsumexp nansum argmax argmin count_nonzero norm nanmean")
REDUCTIONS_OF_DIM = words(
    "sum mean amax amin std var all any logsumexp nansum prod argmax argmin count_nonzero norm nanmean"
)
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
            f"clamp({name}, {c.real_number()}, {c.real_number()}",
            f"cat([{name}, {name}], {c.dim(c.tensors[name])}",
            f"stack([{name} * 1, {name}.clone()], {c.dim(c.tensors[name], 1)}",
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
            c.random.sample(
                range(t.dim()), c.random.randrange(kind in ("logsumexp", "std", "var") and t.dim() > 0, t.dim() + 1)
            )
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
            f"{c.fresh()} = {name}.nan_to_num().unique(return_inverse=True)[1]",  # the order of nans is chance
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
