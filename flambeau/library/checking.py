"""`opcheck`: whether an operator does what is declared of it: what it writes and shares, its derivative, its results without values, and the
graph of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from ..autograd.api import grad
from ..autograd.grad_mode import no_grad
from ..core import naming
from ..core.pytree import tree_flatten, tree_leaves, tree_unflatten
from ..core.tensor import Tensor
from ..ops.machinery.matching import bound
from ..ops.machinery.schema import Argument, Schema
from ..ops.pointwise.comparison import isclose
from ..random import fork_rng, manual_seed
from .operator import OperatorFace

_compiler, _proxies, _testing = map(naming.late, ("compiler", "export.proxy_tensor", "testing"))
_DEFAULT_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """Error of `opcheck`: what was declared of an operator is not what it does."""


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _DEFAULT_TESTS,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Check an operator of one's own with a call's arguments; return "SUCCESS", or else the exception, for each test in `test_utils`.

    "test_schema": nothing else is changed than the schema says, and no other memory is shared. "test_autograd_registration": gradients come
    from a registered derivative, not from a kernel that happens to be made of differentiable operators. "test_faketensor": results for
    tensors without values are like the real ones. "test_aot_dispatch_dynamic" (and "..._static"): the recorded graph and the compiled call
    give eager results and gradients. Whether gradients are right is what `autograd.gradcheck` tests. With `raise_exception` the first failure
    is raised as an OpCheckError.

    >>> opcheck(flambeau.ops.aten.sin.default, (flambeau.randn(3, requires_grad=True),), test_utils="test_schema")
    {'test_schema': 'SUCCESS'}
    """
    if (rtol is None) != (atol is None):
        raise ValueError("opcheck(op, ...): if you specify one of rtol/atol, you must specify both")
    names = tuple(_TESTS) if test_utils == "ALL" else (test_utils,) if isinstance(test_utils, str) else test_utils
    if not isinstance(names, (tuple, list)) or not _TESTS.keys() >= set(names):
        raise ValueError(f"opcheck(op, ..., test_utils={names}): expected some of {tuple(_TESTS)}")
    call = _Call(_one_overload(op), args, kwargs or {}, {"atol": atol, "rtol": rtol})
    results: dict[str, Any] = {}
    for name in names:
        try:
            with fork_rng(devices=()):
                if not any(t.is_meta for t in _tensors(call.leaves)):  # tensors without values: nothing to compare
                    _TESTS[name](call)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error} (see the traceback above)") from error
            results[name] = error
    return results


def _one_overload(op: Any) -> Any:
    """Return the function of an operator given as itself, by its definition or by its only overload."""
    op = getattr(op, "_opoverload", op)
    if hasattr(op, "overloads"):  # a packet of torch.ops
        names = ["" if name == "default" else name for name in op.overloads()]
        if len(names) != 1:
            raise RuntimeError(
                "opcheck can only test operators without overloads. Got the following overloads for"
                f" {op._qualified_op_name}: {names}"
            )
        op = getattr(op, op.overloads()[0])
    record = getattr(op, "op", None)
    if not hasattr(op, "_schema") and (record is None or record.schema.name.startswith("aten::")):
        raise ValueError(f"opcheck(op, ...): op must be an operator, e.g. torch.ops.aten.sin.default, got {type(op)}")
    return op


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _storages(value: Any) -> set[int]:
    """Return which storages a value's tensors have."""
    return {id(t._storage) for t in _tensors(value)}


class _Call:
    """The call that is checked: the operator, its schema, and the arguments, which are copied for each use."""

    def __init__(self, op: Any, args: Any, kwargs: dict[str, Any], close: dict[str, Any]) -> None:
        self.op, self.close = op, close
        self.leaves, self.shape = tree_flatten((tuple(args), kwargs))
        self.schema: Schema = op._schema if hasattr(op, "_schema") else op.op.schema

    def inputs(self, device: Any = None) -> list[Any]:
        """Return the leaves of the arguments, with copies of all tensors, on another device if one is given."""

        def copy(t: Tensor) -> Tensor:
            return (t.detach().clone() if device is None else t.detach().to(device)).requires_grad_(t.requires_grad)

        return [copy(leaf) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]

    def run(self, leaves: Sequence[Any]) -> Any:
        args, kwargs = tree_unflatten(leaves, self.shape)
        return self.op(*args, **kwargs)

    def step(self, *leaves: Any) -> tuple[Any, list[Any]]:
        """Run on copies of `leaves`; return the results with the changed arguments, and the gradients of what requires them."""
        given = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        results = self.run(given)
        sums = [t.sum().abs() for t in _tensors(results) if t.requires_grad]
        wanted = [t for t in _tensors(list(leaves)) if t.requires_grad]
        grads = grad(sum(sums), wanted, allow_unused=True) if sums and wanted else []
        return (results, _tensors(given) if self.schema.is_mutable else []), list(grads)

    def compare(self, got: Any, expected: Any, what: str) -> None:
        try:
            _testing.assert_close(got, expected, equal_nan=True, **self.close)
        except AssertionError as difference:
            raise AssertionError(
                f"{what} of the operator are different in eager mode and in a recorded graph or compiled call:"
                f" {difference}"
            ) from difference


def _check_schema(call: _Call) -> None:
    """Raise an error if a tensor is changed or memory is shared that the schema does not name."""
    leaves = call.inputs()
    args, kwargs = tree_unflatten(leaves, call.shape)
    given = list(zip(call.schema.arguments, bound(call.schema, args, kwargs, numbers=True)))
    before = [[(t, t.detach().clone(), t._storage) for t in _tensors(value)] for _, value in given]
    results = call.run(leaves)
    outputs = list(zip(call.schema.returns, results if isinstance(results, tuple) else (results,)))
    written = set[int]().union(*(_storages(value) for argument, value in given if argument.is_write))
    for (argument, value), kept in zip(given, before):
        name = "input" if argument.name == "self" else argument.name
        for place, (declared, output) in enumerate(outputs):
            shared = _storages(value) & _storages(output)
            if shared and not any(_may_alias(a, declared) and shared <= _storages(other) for a, other in given):
                raise RuntimeError(f"Argument {name} is not defined to alias output but was aliasing")
            if output is value and shared - written:
                raise RuntimeError(
                    f"`outputs[{place}] is {name}`, but only an operator that writes may return its input"
                )
        if any(not _is_unchanged(*state) and id(state[2]) not in written for state in kept):
            raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")
    for (i, (declared, one)), (j, (other, two)) in combinations(enumerate(outputs), 2):
        if _storages(one) & _storages(two) and not _may_alias(declared, other):
            raise RuntimeError(f"Outputs {i} and {j} alias unexpectedly")


def _may_alias(one: Argument, two: Argument) -> bool:
    """Return whether a schema lets two of its arguments and results share memory."""
    first, second = one.alias_info, two.alias_info
    return bool(first and second and ("*" in first.after_set or first.after_set & second.before_set))


def _is_unchanged(tensor: Tensor, before: Tensor, storage: Any) -> bool:
    same = tensor._storage is storage and tensor.shape == before.shape
    return same and bool(isclose(tensor.detach(), before, rtol=0.0, atol=0.0, equal_nan=True).all())


def _check_registration(call: _Call) -> None:
    """Raise an error if results require grad only because of what a kernel called."""
    record = call.op.op if isinstance(call.op, OperatorFace) else None
    if record is None or not any(t.requires_grad for t in _tensors(call.leaves)):
        return
    rules, leaves = record.impl, call.inputs()
    if rules.own or rules.backward is not None or record.kernels.keys() & {"autograd", "compositeimplicitautograd"}:
        return
    if any(t.requires_grad and all(t is not given for given in leaves) for t in _tensors(call.run(leaves))):
        raise AssertionError(
            f"{record.name}: at least one output of this operator has requires_grad=True but no derivative is registered:"
            " its kernel calls operators or an autograd.Function, which a graph of this operator does not show. Use"
            " register_autograd, or register the kernel of an operator that consists of others as CompositeImplicitAutograd"
        )


def _check_fake(call: _Call) -> None:
    """Raise an error if a call with tensors without values does not return tensors like those of the real call."""
    with no_grad():
        ways = [(leaves, call.run(leaves)) for leaves in (call.inputs(), call.inputs("meta"))]
    real, fake = (_tensors(results) for _, results in ways)
    comparing = f"When comparing the output of {call.op} on tensors without values and on real ones, found"
    if len(real) != len(fake):
        raise AssertionError(f"{comparing} mismatch in number of returns {len(fake)} != {len(real)}")
    for one, two in zip(map(_metadata, fake), map(_metadata, real)):
        for what in one:
            if one[what] != two[what]:
                raise RuntimeError(
                    f"{comparing} mismatched tensor metadata: {what} {one[what]} and {two[what]} are not equal!"
                )
    for what, first in (("inputs", 0), ("each_other", 1)):
        shared = [
            [bool(_storages(a) & _storages(b)) for a in _tensors(way[first]) for b in _tensors(way[1]) if a is not b]
            for way in ways
        ]
        if shared[0] != shared[1]:
            raise RuntimeError(f"{comparing} mismatch in outputs_alias_{what} check")


def _metadata(t: Tensor) -> dict[str, Any]:
    strides = [stride for size, stride in zip(t.shape, t.stride()) if size > 1] if t.numel() else []
    return {
        "Shapes": t.shape,
        "Dtypes": t.dtype,
        "Layouts": t.layout,
        "Strides": strides,
        "Offsets": t.storage_offset(),
    }


def _check_compiled(call: _Call, dynamic: bool) -> None:
    """Raise an error if a recorded graph or the compiled call does not compute what the eager call does, or tensors without values do not pass."""
    manual_seed(0)
    expected, expected_grads = call.step(*call.inputs())
    call.step(*call.inputs("meta"))
    graph, compiled = _proxies.make_fx(call.step, tracing_mode="fake"), _compiler.compile(call.step, dynamic=dynamic)
    for way in (graph(*call.inputs()), *[compiled] * 4):  # compiled calls are native from the third on
        manual_seed(0)
        results, grads = way(*call.inputs())
        call.compare(results, expected, "Outputs")
        call.compare(grads, expected_grads, "Gradients")


_TESTS: dict[str, Callable[[_Call], None]] = {
    "test_schema": _check_schema,
    "test_autograd_registration": _check_registration,
    "test_faketensor": _check_fake,
    "test_aot_dispatch_static": partial(_check_compiled, dynamic=False),
    "test_aot_dispatch_dynamic": partial(_check_compiled, dynamic=True),
}
