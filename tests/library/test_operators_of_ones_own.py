"""Operators registered by the user behave as PyTorch's do: calls, schemas, gradients, errors."""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Sequence
from typing import List, Optional, Tuple  # noqa: UP035  (annotations that users write)

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.library

torch = judge("torch")
LIBRARIES = pytest.mark.parametrize("library", [flambeau, torch], ids=["flambeau", "torch"])
_numbers: collections.Counter[str] = collections.Counter()


def fresh_name(name: str) -> str:
    test = re.sub(r"\W+", "_", os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].rpartition(" ")[0])
    _numbers[test] += 1
    return f"flambeau_{test}_{_numbers[test]}::{name}"


def functions(T):
    """Functions with annotations of one library's types, by name."""
    Tensor, Number = T.Tensor, T.types.Number

    def everything(x: Tensor, s: float, n: list[int], o: Optional[Tensor] = None, b: bool = True, w: str = "a", i: int = 3) -> Tuple[Tensor, Tensor]: ...  # fmt: skip  # noqa: E501, UP006, UP045
    def kept(x: Tensor, *, eps: float = 1e-5, d: T.device, z: Number = 1) -> None: ...
    def lists(x: List[Tensor], y: Sequence[float]) -> List[Tensor]: ...  # noqa: UP006
    def unions(x: Tensor, y: int | None, t: T.dtype) -> int: ...
    def unannotated(x, y: int) -> Tensor: ...
    def no_return(x: Tensor): ...
    def starred(*x: Tensor) -> Tensor: ...
    def odd_argument(x: dict) -> Tensor: ...
    def odd_default(x: Tensor, y: Sequence[float] = (1.0,)) -> Tensor: ...
    def odd_return(x: Tensor) -> dict: ...

    return {key: value for key, value in locals().items() if callable(value) and key.islower()}


NAMES = ["everything", "kept", "lists", "unions"]
WRONG = ["unannotated", "no_return", "starred", "odd_argument", "odd_default", "odd_return"]


def _globals_for(function, T):
    for key, value in list(function.__annotations__.items()):
        if isinstance(value, str):
            names = {**globals(), "T": T, "Tensor": T.Tensor, "Number": T.types.Number}
            function.__annotations__[key] = eval(value, names)
    return function


def schema_of(T, name, **options):
    return T.library.infer_schema(_globals_for(functions(T)[name], T), **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mutates", [(), ("x",), "unknown"], ids=str)
def test_inferred_schemas(name, mutates):
    assert schema_of(flambeau, name, mutates_args=mutates) == schema_of(torch, name, mutates_args=mutates)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_annotations(name):
    messages = []
    for T in (flambeau, torch):
        with pytest.raises(ValueError) as caught:
            schema_of(T, name, mutates_args=())
        messages.append(str(caught.value).split(". ")[0].replace("flambeau.", "torch."))
    assert messages[0] == messages[1]


@LIBRARIES
def test_wrong_names_in_mutates_args(library):
    with pytest.raises(ValueError, match="in mutates_args were not found"):
        schema_of(library, "kept", mutates_args=["nothing"])
    with pytest.raises(ValueError, match="only Tensors or collections of Tensors can be mutated"):
        schema_of(library, "unions", mutates_args=["y"])


def make_sine(T):
    def sine(x: T.Tensor) -> T.Tensor:
        return T.from_numpy(np.sin(x.detach().numpy()))

    sine.__annotations__ = {"x": T.Tensor, "return": T.Tensor}
    return T.library.custom_op(fresh_name("sine"), sine, mutates_args=())


@LIBRARIES
def test_a_custom_op_is_found_and_called(library):
    sine = make_sine(library)
    namespace = getattr(library.ops, sine._namespace)
    x = library.tensor([0.5, 1.0])
    for call in (sine, namespace.sine, namespace.sine.default):
        assert np.allclose(call(x).numpy(), np.sin(x.numpy()))
    assert np.allclose(sine(x=x).numpy(), np.sin(x.numpy()))
    assert repr(sine) == f"<CustomOpDef({sine._namespace}::sine)>"
    assert str(namespace.sine) == f"{sine._namespace}.sine"
    with pytest.raises(AttributeError, match="object has no attribute 'cosine'"):
        _ = namespace.cosine


@LIBRARIES
def test_wrong_arguments(library):
    sine = make_sine(library)
    with pytest.raises(
        RuntimeError, match="Expected a value of type 'Tensor' for argument 'x' but instead found type 'int'"
    ):
        sine(1)
    with pytest.raises(RuntimeError, match="is missing value for argument 'x'"):
        sine()
    with pytest.raises(RuntimeError, match=r"expected at most 1 argument\(s\) but received 2"):
        sine(library.ones(1), 2)


@LIBRARIES
def test_gradient_of_a_custom_op(library):
    sine = make_sine(library)
    x = library.tensor([0.5, 1.0], requires_grad=True)
    y = sine(x)
    assert "GeneratedBackwardFor_" in repr(y.grad_fn)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()
    seen = []

    def setup(ctx, inputs, output):
        seen.append((len(inputs), ctx.needs_input_grad[0]))
        ctx.save_for_backward(*inputs)

    sine.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=setup)
    (grad,) = library.autograd.grad(sine(x).sum(), x, create_graph=True)
    assert np.allclose(grad.detach().numpy(), np.cos(x.detach().numpy()))
    (second,) = library.autograd.grad(grad.sum(), x)
    assert np.allclose(second.numpy(), -np.sin(x.detach().numpy()))
    assert seen == [(1, True)]


@LIBRARIES
def test_lists_of_tensors_and_several_results(library):
    T = library

    def both(xs: list[T.Tensor], k: float) -> tuple[T.Tensor, T.Tensor]:
        return xs[0] * k, xs[1] + k

    both.__annotations__ = {"xs": list[T.Tensor], "k": float, "return": tuple[T.Tensor, T.Tensor]}
    op = T.library.custom_op(fresh_name("both"), both, mutates_args=())
    needs = []

    def setup(ctx, inputs, output):
        ctx.k = inputs[1]

    def backward(ctx, a, b):
        needs.append(ctx.needs_input_grad)
        return [a * ctx.k, b], None

    op.register_autograd(backward, setup_context=setup)
    xs = [T.ones(2, requires_grad=True), T.ones(2)]
    first, second = op(xs, 3.0)
    first.sum().backward()
    assert xs[0].grad.tolist() == [3.0, 3.0] and second.tolist() == [4.0, 4.0]
    assert [[list(n[0]), n[1]] for n in needs] == [[[True, False], False]]


@LIBRARIES
def test_outputs_must_be_new(library):
    def same(x):
        return x

    same.__annotations__ = {"x": library.Tensor, "return": library.Tensor}
    op = library.library.custom_op(fresh_name("same"), same, mutates_args=())
    with pytest.raises(RuntimeError, match="may not alias any inputs to this custom operator"):
        op(library.ones(2))


@LIBRARIES
def test_ops_that_change_their_arguments(library):
    def increase(x, by=1.0):
        x.detach().numpy()[...] += by

    increase.__annotations__ = {"x": library.Tensor, "by": float, "return": None}
    op = library.library.custom_op(fresh_name("increase"), increase, mutates_args={"x"})
    x = library.zeros(2)
    version = x._version
    assert op(x) is None
    assert x.tolist() == [1.0, 1.0] and x._version > version
    with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional operator"):
        op.register_autograd(lambda ctx, g: g)
    y = library.ones(2, requires_grad=True)
    z = y * 1
    square = z * z
    op(z)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


@LIBRARIES
def test_meta_tensors_need_a_fake_rule(library):
    sine = make_sine(library)
    x = library.ones(2, 3, device="meta")
    with pytest.raises(RuntimeError, match="There was no fake impl registered"):
        sine(x)
    sine.register_fake(lambda x: library.empty_like(x))
    assert sine(x).shape == (2, 3) and sine(x).device.type == "meta"


@LIBRARIES
def test_define_and_impl(library):
    name = fresh_name("scale")
    space, short = name.split("::")
    library.library.define(name, "(Tensor x, int k=2, *, float shift=0.5) -> Tensor")
    assert library.library.impl(name, "cpu", lambda x, k=2, *, shift=0.5: x * k + shift) is None
    op = getattr(getattr(library.ops, space), short)
    assert op(library.ones(1)).item() == 2.5 and op(library.ones(1), 3, shift=1.0).item() == 4.0
    x = library.ones(1, requires_grad=True)
    assert "AddBackward0" in repr(op(x).grad_fn)  # autograd follows the kernel until it is told a derivative
    library.library.register_autograd(name, lambda ctx, g: (g * 7, None))
    op(x).backward()
    assert x.grad.item() == 7.0
    with pytest.raises(RuntimeError, match="multiple times"):
        library.library.define(name, "(Tensor x) -> Tensor")


@LIBRARIES
def test_library_objects(library):
    space = fresh_name("x").split("::")[0]
    made = library.library.Library(space, "DEF")
    assert made.define("twice(Tensor x) -> Tensor").split("::")[-1].split(".")[0] == "twice"
    made.impl("twice", lambda x: x * 2, "CPU")
    assert getattr(library.ops, space).twice(library.ones(1)).item() == 2.0
    with pytest.raises(NotImplementedError, match="Meta tensors"):
        getattr(library.ops, space).twice(library.ones(1, device="meta"))
    with pytest.raises(ValueError, match="Unsupported kind"):
        library.library.Library(space, "OTHER")


@LIBRARIES
def test_operators_are_forgotten_with_their_library(library):
    space = fresh_name("x").split("::")[0]
    for factor in (2, 3):  # the second would be refused if the first were still there
        made = library.library.Library(space, "DEF")
        made.define("scale(Tensor x) -> Tensor")
        made.impl("scale", lambda x, k=factor: x * k, "CPU")
        assert getattr(library.ops, space).scale(library.ones(1)).item() == factor
        del made


def test_a_name_of_our_own_package_is_refused():
    with pytest.raises(ValueError, match="is taken"):
        flambeau.library.define("linalg::mine", "(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="is taken"):  # also where nobody has used it yet
        flambeau.library.Library("aten", "IMPL").impl("no_such_operator", lambda x: x * 7, "CPU")
    assert flambeau.ops.aten.relu(flambeau.ones(1)).item() == 1


@LIBRARIES
def test_what_a_library_registered_goes_with_it(library):
    name = fresh_name("twice")
    space = name.split("::")[0]
    library.library.define(name, "(Tensor x) -> Tensor")
    made = library.library.Library(space, "IMPL", "CPU")
    made.impl("twice", lambda x: x * 2)
    operator = getattr(library.ops, space).twice
    assert operator(library.ones(1)).item() == 2 and operator.default.tags == []
    made._destroy()
    with pytest.raises(NotImplementedError, match="Could not run"):
        operator(library.ones(1))


def test_an_operator_of_ones_own_is_a_record_like_any_other():
    from flambeau.core import modes
    from flambeau.ops import OPS
    from flambeau.ops.machinery.record import Op

    sine = make_sine(flambeau)
    op = OPS[sine._qualname]
    assert type(op) is Op and op is sine._opoverload.op and str(op.schema).startswith(sine._qualname)
    assert set(op.kernels) == {"default", "meta"} and op.writes == ()
    x = flambeau.tensor([0.5, 1.0])
    assert op.bind((), {"x": x}) == {"x": x}
    seen = []

    class Watch(modes.Mode):
        def handle(self, op, function, args, kwargs):
            seen.append(op.key)
            return function(*args, **kwargs)

    with Watch():
        sine(x)
    assert seen == [sine._qualname]
    with pytest.warns(UserWarning, match="performance drop"):
        rows = flambeau.vmap(sine)(flambeau.ones(3, 2))
    assert np.allclose(rows.numpy(), np.sin(np.ones((3, 2))))


@LIBRARIES
def test_arguments_that_override_operators_are_asked(library):
    sine = make_sine(library)

    class Answers:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__.split(".")[0], types

    named, types = sine(Answers())
    assert named == "sine" and tuple(types) == (Answers,)


def test_forgotten_operators_leave_no_record():
    from flambeau.ops import OPS

    name = fresh_name("twice")
    with flambeau.library.Library(name.split("::")[0], "DEF") as made:
        made.define("twice(Tensor x) -> Tensor")
        assert OPS[name].kind == "composite"
    assert name not in OPS


@LIBRARIES
def test_batches_precision_and_modes_can_be_told(library):
    import importlib

    Tensor, name, seen = library.Tensor, fresh_name("squares"), []

    def squares(x, k):
        return x * x * k

    squares.__annotations__ = {"x": Tensor, "k": float, "return": Tensor}
    squares = library.library.custom_op(name, squares, mutates_args=())

    @squares.register_vmap
    def _(info, in_dims, x, k):
        seen.append((info.batch_size, in_dims))
        return squares(x, k), in_dims[0]

    rows = library.vmap(lambda v: squares(v, 2.0), in_dims=1)(library.arange(6.0).reshape(3, 2))
    assert rows.tolist() == [[0.0, 8.0, 32.0], [2.0, 18.0, 50.0]] and seen == [(2, (1, None))]
    library.library.register_autocast(name, "cpu", library.bfloat16)
    with library.autocast("cpu"):
        assert squares(library.ones(2), 1.0).dtype is library.bfloat16
    assert squares(library.ones(2), 1.0).dtype is library.float32

    class Plain(importlib.import_module(f"{library.__name__}.utils._python_dispatch").TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Plain():
        assert squares(library.ones(2), 3.0).tolist() == [3.0, 3.0]
    library.library.register_torch_dispatch(name, Plain, lambda mode, func, types, args, kwargs: args[0] + 1)
    with Plain():
        assert squares(library.ones(2), 3.0).tolist() == [2.0, 2.0]


@LIBRARIES
def test_the_older_forms_take_the_library_first(library):
    space = fresh_name("").removesuffix("::")
    with library.library._scoped_library(space, "DEF") as made:

        @library.library.define(made, "more(Tensor x) -> Tensor")
        def more(x):
            return x + 1

        made.define("into(Tensor x, *, Tensor! out) -> ()")
        library.library.impl(made, "into", "CPU")(lambda x, *, out: [out.copy_(x), None][1])
        operators, out = getattr(library.ops, space), library.zeros(2)
        operators.into(library.ones(2), out=out)
        assert operators.more(out).tolist() == [2.0, 2.0]
        written = operators.into.default._schema.arguments[1]
        assert written.alias_info.is_write and str(operators.into.default._schema).endswith(
            "into(Tensor x, *, Tensor($0! -> ) out) -> ()"
        )


@LIBRARIES
def test_kernels_for_devices_that_are_not_here_are_kept_and_never_run(library):
    space = fresh_name("").removesuffix("::")
    with library.library._scoped_library(space, "DEF") as made:
        made.define("same(Tensor x) -> Tensor")
        for key in ("MPS", "XPU", "HPU", "PrivateUse1", "QuantizedCPU", "SparseCUDA", "AutogradXPU"):
            made.impl("same", lambda x: x / 0, key)
        made.impl("same", lambda x: x.clone(), "CPU")
        assert getattr(library.ops, space).same(library.ones(1)).tolist() == [1.0]
        with pytest.raises(RuntimeError, match="could not parse dispatch key: Nowhere"):
            made.impl("same", lambda x: x, "Nowhere")


@LIBRARIES
def test_a_kernel_may_come_before_the_definition(library):
    name = fresh_name("twice")
    library.library.impl(name, ["CPU"], lambda x: x * 2)
    library.library.define(name, "(Tensor x) -> Tensor")
    space, _, own = name.partition("::")
    assert getattr(getattr(library.ops, space), own)(library.ones(2)).tolist() == [2.0, 2.0]


@LIBRARIES
def test_triton_op_is_its_own_rule_of_shapes(library):
    def doubled(x):
        return x * 2

    doubled.__annotations__ = {"x": library.Tensor, "return": library.Tensor}
    made = library.library.triton_op(fresh_name("doubled"), doubled, mutates_args=())
    made.register_autograd(lambda ctx, grad: grad * 2)
    x = library.ones(3, requires_grad=True)
    made(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3 and made(library.ones(4, 5, device="meta")).shape == (4, 5)


def test_a_fake_is_replaced_unless_that_is_refused():
    @flambeau.library.custom_op("fakes::twice", mutates_args=())
    def twice(x: flambeau.Tensor) -> flambeau.Tensor:
        return x * 2

    for shape in ((2,), (3,)):
        flambeau.library.register_fake("fakes::twice", lambda x, shape=shape: x.new_empty(shape))
    with pytest.raises(RuntimeError, match="already has a fake impl"):
        flambeau.library.register_fake("fakes::twice", lambda x: x.new_empty(4), allow_override=False)
    assert tuple(twice(flambeau.empty(5, device="meta")).shape) == (3,)
