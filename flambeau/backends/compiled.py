"""Map and reduction kernels as native functions, on any device: built at the first use of a formula with its dtypes and layout, then cached."""

from __future__ import annotations

from typing import Any

from ..core.backend import backend_of
from ..core.device import cpu, device
from ..core.dtype import dtype
from ..expr.node import Expr
from ..kernels import elementwise
from ..kernels.reduction import ARG_COMBINES, COMBINES, Reduction
from ..kernels.reduction import build as build_reduction
from .cpu import jit

maps: dict[
    int, tuple[Any, ...]
] = {}  # roots, dtypes of inputs and outputs, kinds and rank of a map on the CPU, by its address
reductions: dict[int, tuple[Any, ...]] = {}  # the reduction and its inner loop, by address
_maps: dict[tuple[Any, ...], Any] = {}
_reductions: dict[tuple[Any, ...], Any] = {}


def map_kernel(
    roots: tuple[Expr, ...],
    in_dtypes: tuple[dtype, ...],
    out_dtypes: tuple[dtype, ...],
    kinds: str,
    rank: int,
    where: device = cpu,
    brief: bool = False,
) -> Any:
    """Return the native function that stores roots[k] to output k for every element; arg(i) in a formula is input i.

    An output may be the same memory as an input if the layouts are the same; any other overlap is the caller's error.
    A `brief` function is for few elements: on the CPU it keeps the interpreter's lock.
    """
    brief = brief and where is cpu
    key = (tuple(map(id, roots)), in_dtypes, out_dtypes, kinds, rank, where, brief)
    found = _maps.get(key)
    if found is None:
        letters = "".join(d.letter for d in (*out_dtypes, *in_dtypes))
        text = f"map {letters} {kinds} {rank} {elementwise.formula_text(roots)}"
        if where is cpu:
            found = jit.compile(lambda: elementwise.build(roots, in_dtypes, out_dtypes, kinds, rank), text, brief)
            maps[jit.address_of(found)] = (roots, in_dtypes, out_dtypes, kinds, rank)
        else:
            found = backend_of(where).compile_for(
                lambda: elementwise.build(roots, in_dtypes, out_dtypes, kinds, rank), text, where
            )
        _maps[key] = found
    return found


def reduce_kernel(
    map_root: Expr,
    combine: str,
    final: Expr | None,
    in_dtypes: tuple[dtype, ...],
    out_dtype: dtype,
    acc_dtype: dtype,
    kept_rank: int,
    reduced_rank: int,
    inner: str,
    kinds: str,
    where: device = cpu,
) -> Any:
    """Return the native function that reduces `map_root` (over arg(i) = input i).

    `final`, over arg(0) = the result and arg(1) = the number of elements, is applied once per result. `inner` says
    whether the innermost loop runs over a "reduced" or a "kept" dimension, and `kinds` how each input steps along it:
    "c" by 1, "b" not at all, "s" otherwise ("d", "l": passed by value). argmax and argmin store the position
    among the reduced dimensions, in the order they are given, as int64: the first of equals, and nan before anything.
    """
    if combine not in COMBINES and combine not in ARG_COMBINES:
        raise ValueError(f"unknown reduction {combine!r}")
    if reduced_rank < 1 or inner not in ("reduced", "kept") or (inner == "kept" and kept_rank < 1):
        raise ValueError(f"cannot reduce {reduced_rank} of {kept_rank + reduced_rank} dimensions with inner={inner!r}")
    roots = (map_root,) if final is None else (map_root, final)
    key = (
        tuple(map(id, roots)),
        combine,
        in_dtypes,
        out_dtype,
        acc_dtype,
        kept_rank,
        reduced_rank,
        inner,
        kinds,
        where,
    )
    found = _reductions.get(key)
    if found is None:
        reduction = Reduction(map_root, combine, final, in_dtypes, out_dtype, acc_dtype, kept_rank, reduced_rank, kinds)
        letters = "".join(d.letter for d in (out_dtype, acc_dtype, *in_dtypes))
        text = (
            f"reduce {combine} {letters} {kept_rank} {reduced_rank} {inner} {kinds} {elementwise.formula_text(roots)}"
        )
        if where is cpu:
            found = jit.compile(lambda: build_reduction(reduction, inner), text)
            reductions[jit.address_of(found)] = (reduction, inner)
        else:
            found = backend_of(where).compile_for(lambda: build_reduction(reduction, inner), text, where)
        _reductions[key] = found
    return found
