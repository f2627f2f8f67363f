"""Schemas: read, written, matched to calls; the table of PyTorch's operators."""

from __future__ import annotations

import inspect

import pytest
from answers import judge

import flambeau as torch
from flambeau.ops.machinery.matching import NoMatch, bind, matched
from flambeau.ops.machinery.schema import REQUIRED, parse_schema
from flambeau.ops.machinery.schema_table import lines

LINES = [line for overloads in lines().values() for line in overloads.values()]


def test_every_line_is_written_as_it_was_read() -> None:
    assert [line for line in LINES if str(parse_schema(line)) != line] == []


def test_the_table_says_what_pytorch_says() -> None:
    real = judge("torch")
    theirs = {(s.name, s.overload_name): str(s) for s in reversed(real._C._jit_get_all_schemas())}
    ours = {(s.name, s.overload_name): str(s) for s in map(parse_schema, LINES)}
    assert {k: (v, theirs[k]) for k, v in ours.items() if k in theirs and theirs[k] != v} == {}


def test_parts_of_a_schema() -> None:
    schema = parse_schema(
        'a::b.c(Tensor(a!) self, int[2] n=1, Tensor(b!)[] many=[], *, str? s="x\\n", ScalarType d=4) -> (Tensor(a!) y, int z)'
    )
    self, n, many, s, d = schema.arguments
    assert (schema.name, schema.overload_name, schema.key, schema.fields) == ("a::b", "c", "a::b.c", ("y", "z"))
    assert self.is_write and self.alias_info.before_set == {"a"} and self.default is REQUIRED
    assert (n.default, n.N, n.base, n.is_list) == ([1, 1], 2, "int", True)
    assert many.alias_info.of_elements and many.is_write
    assert (s.default, s.kwarg_only, s.is_optional, d.default) == ("x\n", True, True, torch.int64)
    assert schema.is_mutable and schema.shares and not schema.is_out
    assert inspect.Signature(list(schema.parameters.values())).parameters["n"].default == [1, 1]


@pytest.mark.parametrize(
    "text", ["f(Tensor x", "f(Tensor x) -> ", "f(Tensor x) Tensor", "f(3 x) -> Tensor", "f() -> T T T"]
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RuntimeError, match="schema"):
        parse_schema(text)


def test_arguments_find_their_places() -> None:
    schema = parse_schema("f(Tensor self, int[] size, *, int k=3) -> Tensor")
    x = torch.ones(2)
    assert bind(schema, (x,), {"size": (2, 1)}) == [x, [2, 1], 3]
    assert bind(schema, (x, 2, 1), {"nothing": None}, loose=True)[1:] == [[2, 1], 3]
    assert matched(schema, (1, 2), {}, lambda a, value: (a.name, value), lambda a: a.default) == [
        ("self", 1),
        ("size", 2),
        3,
    ]
    for args, kwargs, problem in [
        ((x,), {}, "missing"),
        ((x, [1], 3), {}, "positional"),
        ((x, [1], 3, 4), {}, "many"),
        ((x, [1]), {"z": 1}, "unknown"),
        ((x, [1]), {"self": x}, "twice"),
        ((x, ["a"]), {}, "type"),
    ]:
        with pytest.raises(NoMatch) as refused:
            bind(schema, args, kwargs)
        assert refused.value.args[0] == problem


def _said(torch, name: str) -> str:
    calls = {
        "twice": lambda: torch.jit.script(_add)(torch.ones(1), x=torch.ones(1)),
        "many": lambda: torch.ops.aten.view.default(torch.ones(2), 2, 1),
        "many by name": lambda: torch.ops.aten.relu.default(torch.ones(1), self=torch.ones(1)),
        "missing": lambda: torch.jit.script(_add)(),
        "unknown": lambda: torch.ops.aten.relu.default(torch.ones(1), z=1),
        "dtype": lambda: torch.ops.aten.sum.default(torch.ones(2), dtype="a"),
        "in place": lambda: torch.jit.script(_adds_in_place),
    }
    with pytest.raises(RuntimeError) as raised:
        calls[name]()
    return str(raised.value).partition("\nThe original call")[0].strip()


def _add(x, k: int = 2):
    return x + k


def _adds_in_place(x):
    return x.add_("a")


@pytest.mark.parametrize("name", ["twice", "many", "many by name", "missing", "unknown", "dtype", "in place"])
def test_refusals_are_pytorchs(name: str) -> None:
    real = judge("torch")
    assert _said(torch, name) == _said(real, name)
