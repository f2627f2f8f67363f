"""Small cases of func's transforms in which one word of a rule decides: results are PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau
from flambeau.func import dim


def over_everything(L: Any, name: str, keepdim: bool) -> Any:
    x = (L.arange(24.0).reshape(2, 3, 4) * 0.7).sin()
    x = x > 0 if name in ("any", "all") else x
    named = {"keepdim": keepdim} if keepdim else {}
    dims = {"mean": (0, 1), "sum": (0, 1), "amax": (), "amin": (), "logsumexp": (0, 1), "nansum": None}
    given = {"dim": dims[name]} if name in dims else {}
    return L.func.vmap(lambda t: getattr(L, name)(t, **given, **named))(x)


def along(L: Any, name: str, dim: int, keepdim: bool, in_dim: int = 0) -> Any:
    x = (L.arange(24.0).reshape(2, 3, 4) * 0.7).sin()
    found = L.func.vmap(lambda t: getattr(L, name)(t, dim, keepdim=keepdim), in_dims=in_dim)(x)
    return tuple(found) if isinstance(found, tuple) else found


def in_chunks(L: Any, chunk: int, out: Any) -> Any:
    x = L.arange(20.0).reshape(5, 4)
    return L.func.vmap(lambda a: (a * 2, L.ones(2), a.sum()), out_dims=out, chunk_size=chunk)(x)


def empty_with_strides(L: Any, size: tuple, stride: tuple) -> Any:
    found = L.func.vmap(lambda a: a.new_empty_strided(size, stride))(L.zeros(3, 2))
    return tuple(found.shape), found.stride()


NAMES = ["any", "all", "sum", "mean", "amax", "amin", "logsumexp", "nansum", "prod"]
CASES: dict[str, Any] = {
    **{f"{n} of everything, {k}": lambda L, n=n, k=k: over_everything(L, n, k) for n in NAMES for k in (False, True) if (n, k) != ("prod", True)},
    **{
        f"{n} along {d} of {i}, {k}": lambda L, n=n, d=d, k=k, i=i: along(L, n, d, k, i)
        for n in ("sum", "amax", "prod", "max", "median", "argmax", "std", "var", "min")
        for d in (0, -1)
        for k in (False, True)
        for i in (0, 1)
    },
    **{f"chunks of {c}, {o}": lambda L, c=c, o=o: in_chunks(L, c, o) for c in (1, 2, 3, 7) for o in (0, (0, 0, 0), (1, 0, 0))},
    "empty, no element": lambda L: empty_with_strides(L, (0, 2), (2, 1)),
    "empty, strides": lambda L: empty_with_strides(L, (2, 3), (1, 2)),
    "empty, gaps": lambda L: empty_with_strides(L, (2, 3), (7, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, same_outcome) -> None:
    same_outcome(CASES[name])


def test_a_result_without_a_batch_is_that_of_the_first_chunk() -> None:
    found = in_chunks(flambeau, 2, (0, None, 0))
    assert [t.tolist() for t in found] == [t.tolist() for t in in_chunks(flambeau, 5, (0, None, 0))]
    assert found[1].tolist() == [1, 1]


def test_first_class_dimensions_beside_dots_and_none() -> None:
    x = flambeau.arange(24.0).reshape(2, 3, 4)
    i, j = dim.dims(2)
    assert x[i, ..., j].sum(i).order(j).tolist() == x.sum(0).t().tolist()
    assert x[..., i].order(i).tolist() == x.permute(2, 0, 1).tolist()
    assert x[i].order(i).tolist() == x.tolist()
    assert x[i, None].order(i).tolist() == x[:, None].tolist()
    assert x[None, i, ...].order(i).tolist() == x[:, None].tolist()
